"""Table views: the parts of declarations, and their semantics. May import `commands.declaring` and `eventlog`."""
