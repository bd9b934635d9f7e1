"""The views of the sample domain `sensors`."""
