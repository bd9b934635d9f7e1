"""The read side: views declared once, run live and in bulk by Spark. May import `commands` and `eventlog`."""

from eventlog.programs.shadowing import refuse_hidden

refuse_hidden("projections", "headwater projections", "commands")
