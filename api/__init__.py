"""HTTP: commands in, views and streams out. May import `replay`, `projections`, `commands` and `eventlog`."""
