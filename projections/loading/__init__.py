"""Loaders: from records of `patches` to rows in a store, exactly once. May import `stores` and `table`."""
