"""The observations of the sample domain `payments`."""
