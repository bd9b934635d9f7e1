"""The views of the sample domain `listings`."""
