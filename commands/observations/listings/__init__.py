"""The observations of the sample domain `listings`."""
