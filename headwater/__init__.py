"""Headwater's face: your modules import everything that they declare a domain with from here.

    from headwater import Aggregate, Command, Event, Postgres, Rejected, TableView, add, last

Beside it stand `headwater.testing` (tests of your declarations), `headwater.folds` (folds of your own) and
`headwater.client` (sends commands from Python). No other part of Headwater imports any of them.

A name means one thing here, whatever it means elsewhere: `first`, `last` and `count` are folds, `field` is an
expression (not `dataclasses.field`, nor pydantic's `Field`), `events` and `observations` are sources of stream views.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headwater.commands.declaring.aggregate import Aggregate, Command, Event
    from headwater.commands.declaring.filled_fields import AcceptedAt, Claim
    from headwater.commands.declaring.history import convert, default, drop, move, rename, split, upcast
    from headwater.commands.declaring.observation import Observation
    from headwater.commands.declaring.personal import Personal
    from headwater.commands.declaring.process import Process, Reaction, Refused, TimedOut
    from headwater.commands.declaring.row_inputs import RowDeleted
    from headwater.commands.declaring.view_rows import ViewRow
    from headwater.commands.errors import Rejected
    from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated
    from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking, Topic
    from headwater.projections.stream.in_order import in_order, occurs, pattern
    from headwater.projections.stream.sources import (
        BOOLEAN,
        DATE,
        DECIMAL,
        FLOAT,
        INTEGER,
        JSON,
        POINT,
        TEXT,
        TIME,
        events,
        observations,
    )
    from headwater.projections.stream.steps import UNCHANGED
    from headwater.projections.stream.view import StreamView
    from headwater.projections.table.computations import (
        above,
        all_of,
        any_of,
        at_least,
        at_most,
        below,
        differs,
        envelope,
        equals,
        field,
        minus,
        negated,
        negative,
        point,
        value,
        when,
    )
    from headwater.projections.table.folds import (
        EVERY,
        add,
        approximate_distinct,
        average,
        collect,
        count,
        current,
        distinct,
        first,
        highest,
        last,
        lowest,
        maximum,
        members,
        minimum,
        nested,
        ratio,
        top,
    )
    from headwater.projections.table.folds.fold import by_key
    from headwater.projections.table.items import item
    from headwater.projections.table.lookups import Lookup
    from headwater.projections.table.rows import Deleted
    from headwater.projections.table.view import TableView

__all__ = [
    "BOOLEAN",
    "DATE",
    "DECIMAL",
    "EVERY",
    "FLOAT",
    "INTEGER",
    "JSON",
    "POINT",
    "TEXT",
    "TIME",
    "UNCHANGED",
    "AcceptedAt",
    "Aggregate",
    "Cache",
    "Captured",
    "Claim",
    "Command",
    "Deleted",
    "Elasticsearch",
    "Event",
    "Hashed",
    "Lookup",
    "Observation",
    "Personal",
    "Postgres",
    "Process",
    "Ranking",
    "Reaction",
    "Refused",
    "Rejected",
    "RowDeleted",
    "Source",
    "StreamView",
    "TableView",
    "TimedOut",
    "Topic",
    "Truncated",
    "ViewRow",
    "above",
    "add",
    "all_of",
    "any_of",
    "approximate_distinct",
    "at_least",
    "at_most",
    "average",
    "below",
    "by_key",
    "collect",
    "convert",
    "count",
    "current",
    "default",
    "differs",
    "distinct",
    "drop",
    "envelope",
    "equals",
    "events",
    "field",
    "first",
    "highest",
    "in_order",
    "item",
    "last",
    "lowest",
    "maximum",
    "members",
    "minimum",
    "minus",
    "move",
    "negated",
    "negative",
    "nested",
    "observations",
    "occurs",
    "pattern",
    "point",
    "ratio",
    "rename",
    "split",
    "top",
    "upcast",
    "value",
    "when",
]

_WORDS: Final = {
    "headwater.commands.declaring.aggregate": "Aggregate Command Event",
    "headwater.commands.declaring.filled_fields": "AcceptedAt Claim",
    "headwater.commands.declaring.history": "convert default drop move rename split upcast",
    "headwater.commands.declaring.observation": "Observation",
    "headwater.commands.declaring.personal": "Personal",
    "headwater.commands.declaring.process": "Process Reaction Refused TimedOut",
    "headwater.commands.declaring.row_inputs": "RowDeleted",
    "headwater.commands.declaring.view_rows": "ViewRow",
    "headwater.commands.errors": "Rejected",
    "headwater.eventlog.capturing": "Captured Hashed Source Truncated",
    "headwater.projections.stream.in_order": "in_order occurs pattern",
    "headwater.projections.stream.sources": (
        "BOOLEAN DATE DECIMAL FLOAT INTEGER JSON POINT TEXT TIME events observations"
    ),
    "headwater.projections.stream.steps": "UNCHANGED",
    "headwater.projections.stream.view": "StreamView",
    "headwater.projections.table.computations": (
        "above all_of any_of at_least at_most below differs envelope equals field minus negated negative point value "
        "when"
    ),
    "headwater.projections.stores.declared": "Cache Elasticsearch Postgres Ranking Topic",
    "headwater.projections.table.folds": (
        "EVERY add approximate_distinct average collect count current distinct first highest last lowest maximum "
        "members minimum nested ratio top"
    ),
    "headwater.projections.table.folds.fold": "by_key",
    "headwater.projections.table.items": "item",
    "headwater.projections.table.lookups": "Lookup",
    "headwater.projections.table.rows": "Deleted",
    "headwater.projections.table.view": "TableView",
}
"""By the module that defines them: no search, since modules import words of the same name for themselves."""
_MODULES: Final = {word: module for module, words in _WORDS.items() for word in words.split()}


if not TYPE_CHECKING:  # a type checker would take every name for a word

    def __getattr__(name: str) -> object:
        """Import a word at its first use, so that an import of this package stays fast."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        word = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return word


def __dir__() -> list[str]:
    """All words, also those that nobody has used yet."""
    return sorted({*globals(), *__all__})
