"""Runs processes: from events to commands and timers. May import `handling`, `declaring` and `eventlog`."""
