"""Captured databases: a file or folder per shipped domain. A source is declared, so this may import only `eventlog`."""
