"""Folds the log in tasks: a view compiles to Python source, which processes of a local pool or of Spark run."""
