"""The `replay` command: where views stand, and building them anew. May import `projections` and what is below it."""
