"""One file per process manager, each pure. May import `commands.aggregates` and `commands.declaring`, nothing else."""
