"""What an owner of partitions keeps on its own disk. May import `commands.errors` only."""
