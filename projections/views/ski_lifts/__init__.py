"""The views of the sample domain `ski_lifts`."""
