"""The verbs of `replay`: which of them change nothing; all others are recorded in the audit log."""

from __future__ import annotations

from typing import Final

from headwater.eventlog.audit.commands import AuditedCommands
from headwater.projections.errors import UnknownView
from headwater.replay.errors import AmbiguousTarget, NameTaken, NoSuchLetter, NoTerminal, NothingToDrop, NothingToErase

USAGE_ERRORS: Final = (
    UnknownView, NameTaken, NothingToDrop, NothingToErase, AmbiguousTarget, NoSuchLetter, NoTerminal
)  # fmt: skip


class Verbs(AuditedCommands):
    """A group of them."""

    program = "replay"
    read_only = frozenset({"list", "status", "generations", "plan", "explain", "diff", "dead-letters list"})
    refusals = USAGE_ERRORS
