"""The words of aggregates, processes and observations. May import `commands.errors` and `eventlog`."""
