"""From a command record to a transaction. May import `local_state`, `declaring` and `eventlog`."""
