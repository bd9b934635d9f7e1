"""The observations of the sample domain `timelines`."""
