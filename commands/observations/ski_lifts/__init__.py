"""The observations of the sample domain `ski_lifts`."""
