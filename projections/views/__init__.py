"""One file per view, each a declaration. May import the declaration's words and aggregates' events."""
