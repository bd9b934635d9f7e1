"""Folds the log in tasks, which processes of a local pool or of Spark run."""
