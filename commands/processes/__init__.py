"""One folder per shipped domain, with one pure file per process manager.

May import only `commands.aggregates`, captured classes of `eventlog.sources`, and the names that `commands` exports.
"""
