"""The view of the sample domain `timelines`."""
