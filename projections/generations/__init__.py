"""Generations of views: building, swapping, upkeep. May import `loading`, `stores` and `table`."""
