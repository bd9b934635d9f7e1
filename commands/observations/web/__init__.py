"""The observations of the sample domain `web`."""
