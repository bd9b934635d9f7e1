"""The write side: aggregates decide commands, one owner per partition appends. May import `eventlog` only."""
