"""One file per process manager, each pure. May import `commands.aggregates`, `commands.process` and nothing else."""
