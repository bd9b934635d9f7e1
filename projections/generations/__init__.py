"""Generations of views: built, swapped, kept up. May import `loading`, `stores` and `table`."""
