"""The views of the sample domain `buses`."""
