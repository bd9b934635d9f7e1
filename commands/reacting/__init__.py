"""Processes at work: from events to commands and timers. May import `handling`, `declaring` and `eventlog`."""
