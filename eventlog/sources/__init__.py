"""`python -m eventlog.sources` operates captured databases."""
