"""A compiled view: its source, and what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from headwater.projections.table.items import Required
from headwater.projections.table.monoids import Monoid, StateField
from headwater.projections.table.patch import Retraction
from headwater.projections.table.types import ColumnType

GROWING: Final = frozenset({ColumnType.ENTRIES, ColumnType.COUNTS, ColumnType.SKETCH})


OF_EVERY: Final = "every"
"""In place of a number: the functions of all events that the view does not name."""


@dataclass(frozen=True)
class Program:
    """A compiled view; it can be pickled to other processes.

    folding, lifting: the source that makes rows, and the one that makes patches.
    events: the number of the functions of each event type. handles_every: whether there are functions for all others.
    required: what every event of a type must have. tables: the topics of the captured tables that it reads.
    retraction: see Layout.
    """

    tag: str
    key_name: str
    folding: str
    lifting: str
    monoids: tuple[Monoid, ...]
    events: Mapping[str, int]
    handles_every: bool
    required: Mapping[str, tuple[Required, ...]]
    tables: frozenset[str]
    retraction: Retraction | None

    @cached_property
    def fields(self) -> tuple[StateField, ...]:
        """The slots of a row."""
        return tuple(field for monoid in self.monoids for field in monoid.fields)

    @cached_property
    def lists(self) -> tuple[int, ...]:
        """The slots whose values grow with the events."""
        return tuple(at for at, field in enumerate(self.fields) if field.type in GROWING)

    def namespace(self, source: str, decoders: Mapping[str, Any]) -> dict[str, Any]:
        """The names that one of both sources defines; decoders: the names that it may use of them."""
        found: dict[str, Any] = {**decoders} | {f"monoid_{at}": monoid for at, monoid in enumerate(self.monoids)}
        found["__name__"] = f"view {self.tag}"
        exec(compile(source, f"<view {self.tag}>", "exec", dont_inherit=True), found)  # noqa: S102 - our own source
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("fields", "lists")}
