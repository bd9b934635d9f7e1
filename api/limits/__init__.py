"""How much work of one kind there is at once, and how much of it at a time."""
