"""The views of the sample domain `sales`."""
