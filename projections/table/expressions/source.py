"""One event, and what every expression that reads it can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import meant, shown
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.topics import EVENTS
from headwater.projections.table.types import ColumnType


@dataclass(frozen=True, slots=True)
class Source:
    """One event or change of a row: its envelope, its position in its topic, and the record's text."""

    envelope: Envelope
    position: Position
    timestamp_ms: int
    record: str
    topic: str = EVENTS


class Expression(Protocol):
    """A value that is computed from one event."""

    def kind(self, event: type[Event] | None) -> ColumnType:
        """Its type for this event class (None: any event). Raises ValueError naming what the event lacks."""

    def fields(self) -> frozenset[str]:
        """The fields of `data` that it reads."""

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        """Its Spark SQL; `parsed` has the types as which the fields of `data` were parsed."""

    def python(self, event: type[Event] | None) -> str:
        """Python source of its value, over the names of `projections/folding/compiled.py`.

        The value is in JSON types, or a Decimal with the places of its type; Spark's value must equal it.
        """


class UnknownField(ValueError):
    """An event has no field of this name. problem: without what else a text may mean."""

    def __init__(self, event_type: str, name: object, known: Sequence[str]) -> None:
        if isinstance(name, str):
            self.problem = f'event "{event_type}" has no field {meant(name, known)}'
            constant = f'; a text that is no field is written value("{name}")'
        else:
            self.problem = f"a field is named by a text, not by {shown(name)}; it has {', '.join(known)}"
            constant = ""
        super().__init__(self.problem + constant)
