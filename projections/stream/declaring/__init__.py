"""The declaration of a stream view, its sources and columns, and their checks."""
