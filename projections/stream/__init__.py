"""Stream views: the words of declarations. May import `projections.table`, `commands.declaring` and `eventlog`."""
