"""The few ways in which two parts of a row combine, each written once for Python, PostgreSQL and Spark.

A fold (`projections/folds.py`) puts one event into the form that a monoid combines. Every monoid is associative with
null as its identity; that is what lets one declaration run event by event (live) and as one aggregation (replay).

To add one: a class with these members, its laws in `tests/unit/projections/test_monoids.py`, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from projections.types import ColumnType

State = dict[str, Any]
"""The state fields of one row, or of one patch, by name; what no event touched is absent or None."""


@dataclass(frozen=True, slots=True)
class StateField:
    """One stored field of a row. A hidden field's name starts with an underscore."""

    name: str
    type: ColumnType
    ordering: bool = False


class Monoid(Protocol):
    """A group of state fields that combine together."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """The fields, in a fixed order."""

    def combine(self, row: State, patch: State) -> None:
        """Put `patch` into `row`, in place. Only this monoid's fields are read and written."""

    def sql(self, row: str, patch: str) -> dict[str, str]:
        """PostgreSQL: the new value of each field from the aliases `row` and `patch` (which may hold nulls)."""

    def spark(self, lifted: dict[str, str]) -> dict[str, str]:
        """Spark SQL: the aggregate of each field over `lifted`, its expression for one event (null: untouched)."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Keep the values that stand beside the highest (or lowest) ordering key: `last` and `first`."""

    order: StateField
    values: tuple[StateField, ...]
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.order, *self.values)

    def combine(self, row: State, patch: State) -> None:
        theirs, ours = patch.get(self.order.name), row.get(self.order.name)
        if theirs is None or (ours is not None and (theirs < ours if self.highest else theirs > ours)):
            return
        for field in self.fields:
            row[field.name] = patch.get(field.name)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        theirs, ours = f'{patch}."{self.order.name}"', f'{row}."{self.order.name}"'
        wins = f"{theirs} IS NOT NULL AND ({ours} IS NULL OR {theirs} {'>=' if self.highest else '<='} {ours})"
        return {
            field.name: f'CASE WHEN {wins} THEN {patch}."{field.name}" ELSE {row}."{field.name}" END'
            for field in self.fields
        }

    def spark(self, lifted: dict[str, str]) -> dict[str, str]:
        order = lifted[self.order.name]
        members = ", ".join(f"{lifted[field.name]} as `{field.name}`" for field in self.fields)
        best = f"{'max' if self.highest else 'min'}(if({order} is null, null, struct({members})))"
        return {field.name: f"{best}.`{field.name}`" for field in self.fields}


@dataclass(frozen=True, slots=True)
class Sum:
    """Add whole numbers, from 0: `add` and `count`. Floats are refused, for their sum depends on the order."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        row[self.field.name] = (row.get(self.field.name) or 0) + (patch.get(self.field.name) or 0)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        ours, theirs = f'{row}."{self.field.name}"', f'{patch}."{self.field.name}"'
        return {self.field.name: f"coalesce({ours}, 0) + coalesce({theirs}, 0)"}

    def spark(self, lifted: dict[str, str]) -> dict[str, str]:
        return {self.field.name: f"coalesce(sum({lifted[self.field.name]}), 0L)"}


@dataclass(frozen=True, slots=True)
class Extreme:
    """Keep the highest (or lowest) value ever seen: `maximum` and `minimum`. Nothing can take a value back."""

    field: StateField
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        theirs, ours = patch.get(self.field.name), row.get(self.field.name)
        if theirs is not None:
            row[self.field.name] = theirs if ours is None else (max if self.highest else min)(ours, theirs)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        name = "greatest" if self.highest else "least"
        return {self.field.name: f'{name}({row}."{self.field.name}", {patch}."{self.field.name}")'}

    def spark(self, lifted: dict[str, str]) -> dict[str, str]:
        return {self.field.name: f"{'max' if self.highest else 'min'}({lifted[self.field.name]})"}


@dataclass(frozen=True, slots=True)
class Tally:
    """How many times each value is held: `{"350000": 2}`; what is held zero times is dropped.

    It can take back what it was given, so a minimum over it rises again when its owner leaves. It grows with the
    number of distinct values. A patch holds `[{"v": 350000, "n": 1}, …]`, a row the object; `combine` takes both.
    """

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if theirs is None:
            return
        held = dict(row.get(self.field.name) or {})
        for key, number in _entries(theirs):
            held[key] = held.get(key, 0) + number
        row[self.field.name] = {key: number for key, number in held.items() if number}

    def sql(self, row: str, patch: str) -> dict[str, str]:
        ours, theirs = f'{row}."{self.field.name}"', f'{patch}."{self.field.name}"'
        return {self.field.name: f"CASE WHEN {theirs} IS NULL THEN {ours} ELSE tally_add({ours}, {theirs}) END"}

    def spark(self, lifted: dict[str, str]) -> dict[str, str]:
        # Spark has no aggregate that adds up maps: `spark_bulk.py` counts each (key, value) apart and joins them
        return {}


def _entries(tally: dict[str, int] | list[dict[str, Any]]) -> list[tuple[str, int]]:
    if isinstance(tally, dict):
        return list(tally.items())
    return [(str(entry["v"]), entry["n"]) for entry in tally]


ORDER_WIDTHS: Final = (15, 5, 19)


def ordering_key(timestamp_ms: int, partition: int, offset: int) -> str:
    """The order of events across streams: time, then place in the log, as text that sorts bytewise."""
    return "|".join(
        f"{part:0{width}d}" for part, width in zip((timestamp_ms, partition, offset), ORDER_WIDTHS, strict=True)
    )


ORDERING_KEY_SPARK: Final = "format_string('%015d|%05d|%019d', timestamp_ms, `partition`, `offset`)"
