"""Runs the parts together: the local stack of real servers, and Headwater's processes. Import `Stack` from here."""

from eventlog.programs.shadowing import refuse_hidden

refuse_hidden("compose", "headwater run", "api", "replay", "projections", "commands")
