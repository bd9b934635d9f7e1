"""The `replay` command: the state of views, and rebuilding them. May import `projections` and what is below it."""
