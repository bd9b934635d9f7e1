"""The HTTP API: accepts commands, serves views and streams. May import `replay` and the packages below it."""

from eventlog.programs.shadowing import refuse_hidden

refuse_hidden("api", "headwater api", "replay", "projections", "commands")
