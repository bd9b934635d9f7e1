"""Stream views: the words of their declarations. May import `projections.table`, `commands.declaring` and `eventlog`."""
