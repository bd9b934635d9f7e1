"""The view of the sample domain `saved_searches`."""
