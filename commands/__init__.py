"""The write side: aggregates decide, one handler per partition appends. May import `eventlog` only.

Whoever declares a domain imports from here, and nothing else of this package:

    from commands import Aggregate, Command, Event, Rejected
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventlog.modules import first_with

if TYPE_CHECKING:
    from commands.declaring.aggregate import Aggregate, Command, Event
    from commands.declaring.observation import Observation
    from commands.declaring.process import Process, Reaction, Refused, TimedOut
    from commands.declaring.steps import (
        after,
        convert,
        default,
        drop,
        parsed,
        recoded,
        rename,
        rounded,
        scaled,
        split,
        widened,
        written,
    )
    from commands.errors import Rejected

__all__ = [
    "Aggregate",
    "Command",
    "Event",
    "Observation",
    "Process",
    "Reaction",
    "Refused",
    "Rejected",
    "TimedOut",
    "after",
    "convert",
    "default",
    "drop",
    "parsed",
    "recoded",
    "rename",
    "rounded",
    "scaled",
    "split",
    "widened",
    "written",
]

_PLACES = (
    "commands.declaring.aggregate",
    "commands.declaring.observation",
    "commands.declaring.process",
    "commands.declaring.steps",
    "commands.errors",
)


def __getattr__(name: str) -> object:
    """Import a word when it is asked for: whoever needs another part of this package waits for none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return first_with(name, _PLACES)
