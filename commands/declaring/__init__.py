"""The building blocks of aggregates, processes and observations. May import `commands.errors` and `eventlog`."""
