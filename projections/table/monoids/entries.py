"""Entries: bounded, ordered lists, and parts of a row that are rows themselves.

The entries' own keys decide which are dropped beyond a limit, never their order of arrival: the first of a union are
the first of the firsts of its parts, which keeps a limited list associative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.projections.table.monoids.monoid import Monoid, State, StateField


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


def _key(keys: Sequence[StateField], entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry[key.name] for key in keys)
