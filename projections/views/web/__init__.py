"""The views of the sample domain `web`."""
