"""Commands on their way into the log, receipts on their way back. May import `local_state` and `declaring`."""
