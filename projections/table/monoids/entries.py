"""Entries: bounded, ordered lists, and parts of a row that are rows themselves.

The entries' own keys decide which are dropped beyond a limit, never their order of arrival: the first of a union are
the first of the firsts of its parts, which keeps a limited list associative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.table.monoids.monoid import Monoid, State, StateField


@dataclass(frozen=True, slots=True)
class Ranked:
    """The entries with the highest (or lowest) keys, at most `limit`, in the order of their keys: `collect` and `top`.

    An event adds one entry, and a key has one entry only, because the position in the log is part of it.
    """

    field: StateField
    keys: tuple[StateField, ...]
    limit: int
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if theirs is None:
            return
        held = {_key(self.keys, entry): entry for entry in (*(row.get(self.field.name) or ()), *theirs)}
        kept = sorted(held)[-self.limit :] if self.highest else sorted(held)[: self.limit]
        row[self.field.name] = [held[key] for key in kept]

    def sql(self, row: str, patch: str) -> dict[str, str]:
        name, order = self.field.name, _listed(self.keys)
        kept = _listed(self.keys, " DESC" if self.highest else "")
        text = (
            f"SELECT * FROM {_records(row, self.field, 'held')} "  # noqa: S608
            f"UNION SELECT * FROM {_records(patch, self.field, 'brought')} ORDER BY {kept} LIMIT {self.limit}"
        )
        return {name: _gathered(f'{patch}."{name}"', f'{row}."{name}"', text, order)}

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        entry = f"get({lifted[self.field.name]}, 0)"
        keys = ", ".join(f"{entry}.`{key.name}`" for key in self.keys)
        order = f"if({entry} is null, null, struct({keys}))"
        best = f"{'max' if self.highest else 'min'}_by({entry}, {order}, {self.limit})"
        return {self.field.name: f"reverse({best})" if self.highest else best}


@dataclass(frozen=True, slots=True)
class Keyed:
    """Parts of a row, each with a key and with fields that combine by their own monoids: `distinct` and `nested`.

    limit: the parts with the lowest keys are kept. A key is never removed (a part is only marked as deleted), so a part
    beyond the limit can never come back.
    """

    field: StateField
    key: StateField
    monoids: tuple[Monoid, ...]
    limit: int

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    @property
    def keys(self) -> tuple[StateField, ...]:
        return (self.key,)

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if theirs is None:
            return
        held = {entry[self.key.name]: entry for entry in row.get(self.field.name) or ()}
        for brought in theirs:
            key = brought[self.key.name]
            entry = dict(held.get(key, {self.key.name: key}))
            for monoid in self.monoids:
                monoid.combine(entry, brought)
            held[key] = {name: value for name, value in entry.items() if value is not None}
        row[self.field.name] = [held[key] for key in sorted(held)[: self.limit]]

    def sql(self, row: str, patch: str) -> dict[str, str]:
        name, key = self.field.name, f'"{self.key.name}"'
        combined = [
            f'{text} AS "{each}"' for monoid in self.monoids for each, text in monoid.sql("held", "brought").items()
        ]
        text = (
            f"SELECT {', '.join([key, *combined])} FROM {_records(row, self.field, 'held')} "  # noqa: S608
            f"FULL JOIN {_records(patch, self.field, 'brought')} USING ({key}) ORDER BY {key} LIMIT {self.limit}"
        )
        return {name: _gathered(f'{patch}."{name}"', f'{row}."{name}"', text, key)}

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {}

    def spark_entry(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {name: text for monoid in self.monoids for name, text in monoid.spark(lifted).items()}

    def spark_gather(self, entry: str, keys: str) -> str:
        return f"min_by({entry}, {keys}, {self.limit})"


def _key(keys: Sequence[StateField], entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[key.name] for key in keys)


def _listed(keys: Sequence[StateField], direction: str = "") -> str:
    return ", ".join(f'"{key.name}"{direction}' for key in keys)


def _records(row: str, field: StateField, alias: str) -> str:
    """The entries of `row`'s field as rows, for a FROM clause."""
    columns = ", ".join(f'"{each.name}" {each.entry_type}' for each in field.entry)
    return f"""jsonb_to_recordset(coalesce({row}."{field.name}", '[]')::jsonb) AS {alias}({columns})"""


def _gathered(patch: str, row: str, entries: str, order: str) -> str:
    """`row` if there is no `patch`, else the rows of the query `entries` as JSON text."""
    gathered = f"jsonb_agg(jsonb_strip_nulls(to_jsonb(merged)) ORDER BY {order})"
    query = f"SELECT {gathered}::text FROM ({entries}) AS merged"  # noqa: S608
    return f"CASE WHEN {patch} IS NULL THEN {row} ELSE ({query}) END"
