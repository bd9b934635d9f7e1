"""Folds the log in Python: a view compiles to Python source, and a pool of local processes runs it."""
