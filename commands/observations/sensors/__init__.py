"""The observations of the sample domain `sensors`."""
