"""The observations of the sample domain `saved_searches`."""
