"""The aggregate of the sample domain `saved_searches`."""
