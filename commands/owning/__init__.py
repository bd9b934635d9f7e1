"""What every role that owns partitions does: ownership, where to resume, and users' code that hangs."""
