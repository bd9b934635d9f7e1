"""One folder per shipped domain, in it one file per process manager, each pure.

May import `commands.aggregates` and the words of `commands`, nothing else.
"""
