"""The write side: aggregates decide, one handler a partition appends. May import `eventlog` only."""
