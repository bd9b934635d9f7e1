"""The `replay` command: the state of views, and rebuilding them. May import `projections` and what is below it."""

from eventlog.programs.shadowing import refuse_hidden

refuse_hidden("replay", "headwater replay", "projections", "commands")
