"""Reads the stores and the log, for `api/reading.py`. May import `projections` and `eventlog`."""
