"""Table views: the words of declarations, and what they mean. May import `commands.declaring` and `eventlog`."""
