"""Runs processes and outboxes: from events, rows and messages to commands. May import `handling` and all below it."""
