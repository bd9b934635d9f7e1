"""Reads the stores and the log, one file each, behind `api/ports.py`. May import `projections` and `eventlog`."""
