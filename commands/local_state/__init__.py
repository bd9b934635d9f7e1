"""The local state of an owner of partitions, on its own disk. May import `commands.errors` only."""
