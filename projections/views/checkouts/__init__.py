"""The views of the sample domain `checkouts`."""
