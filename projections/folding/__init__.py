"""Folds the log in tasks: a view compiles to Python source, and worker processes, of a local pool or of Spark, run it."""
