"""The observations of the sample domain `buses`."""
