"""The views of the sample domain `payments`."""
