"""The write side: aggregates decide commands, one owner per partition appends. May import `eventlog` only.

To declare a domain, import from here and from nowhere else in this package:

    from commands import Aggregate, Command, Event, Rejected
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventlog.modules import first_with

if TYPE_CHECKING:
    from commands.declaring.aggregate import Aggregate, Command, Event
    from commands.declaring.observation import Observation
    from commands.declaring.process import Process, Reaction, Refused, TimedOut
    from commands.declaring.row_inputs import RowDeleted
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
    from commands.declaring.view_rows import ViewRow
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
    "RowDeleted",
    "TimedOut",
    "ViewRow",
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
    "commands.declaring.row_inputs",
    "commands.declaring.steps",
    "commands.declaring.view_rows",
    "commands.errors",
)


def __getattr__(name: str) -> object:
    """Import a name at its first use, so that an import of this package stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return first_with(name, _PLACES)
