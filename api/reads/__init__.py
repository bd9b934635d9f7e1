"""Reads the stores and the log, one file each, behind `api/reading.py`. May import `projections` and `eventlog`."""
