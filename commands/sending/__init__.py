"""Sending commands to the log and receiving their receipts. May import `local_state` and `declaring`."""
