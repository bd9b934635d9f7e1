"""The observations of the sample domain `checkouts`."""
