"""The digest of a query: what it does, with all that it uses of the user's modules."""
