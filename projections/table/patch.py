"""A patch: what one event changes in one row, and its source; and aggregates over rows, whose changes are taken back.

Each store keeps two kinds of rows of a view over captured tables. A *contribution* says which group a row of a table is
in, and what it adds there; it counts as deleted, so nobody sees it. A *group* is a visible row, with the sums of its
contributions. Both are in one store, so they cannot disagree about what was read: not after duplicates, nor if the
topic was compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final, NamedTuple

from headwater.projections.table.decimals import EXACT, added, decimal_text
from headwater.projections.table.monoids import MEMBERS, Pick, State, StateField
from headwater.projections.table.types import ColumnType

BULK: Final = "bulk"
"""The source of patches of rows that bulk did not write, in ledgers that say that all events of bulk are applied."""
BATCHES: Final = "batch"
"""The source of the patches of a stream view: their place is the number of the batch that made them."""
WHOLE: Final = 2**31 - 2
"""In place of a patch's number: it is a whole row, one of all that a real-time query made of the record. They have one
place, and are applied again if the record is read again."""
MARK: Final = "\x1f"
"""Begins the keys of contributions; in the key of a group, it is replaced."""
REPLACEMENT: Final = "\ufffd"
GROUP: Final = "_group"
"""State field of a contribution: the key of its group; null if it is in none, as of a deleted row."""
CHANGED: Final = "_changed"
"""State field of a contribution: the offset of its last change."""


class Place(NamedTuple):
    """The source of a patch in its source partition: the event's offset, and the patch's number in the event."""

    offset: int
    number: int


class Patch(NamedTuple):
    """What one event changes in one row; of a stream view, the whole row that a batch or a record gave."""

    key: str
    source: str
    place: Place
    fields: State

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole row, which other patches with the same place do not replace."""
        return self.source == BATCHES or self.place.number == WHOLE


def places_to_json(places: Mapping[str, Place]) -> dict[str, list[int]]:
    """Places by source in JSON: `{"<source>": [offset, number]}`, as ledgers and guards have them."""
    return {source: list(place) for source, place in places.items()}


def places_from_json(places: Mapping[str, Sequence[int]] | None) -> dict[str, Place]:
    """Places by source, read from JSON; none if there is no document."""
    return {source: Place(*place) for source, place in (places or {}).items()}


Group = tuple[str, State]
"""The key of a group, and what is added to its state fields."""


def own(name: str) -> str:
    """The state field of a contribution with what it adds to the sum `name`."""
    return f"_own_{name}"


def contribution_key(topic: str, key: str) -> str:
    """The key of the contribution of a row. topic: of its table. key: the row's, as text."""
    return f"{MARK}{topic}/{key}"


@dataclass(frozen=True)
class Retraction:
    """How contributions become groups.

    sums: the state fields of groups; those of the type COUNTS have how often each value is there. own: the monoid of
    contributions.
    """

    sums: tuple[StateField, ...]
    own: Pick

    @cached_property
    def _added(self) -> tuple[tuple[str, str, int | str], ...]:
        """Each sum, the state field of a contribution with what it adds there, and what it adds if that is null."""
        return tuple(
            (total.name, own(total.name), decimal_text(0, total.type.places) if total.type.is_decimal else 0)
            for total in self.sums
            if not total.entry
        )

    @cached_property
    def _tallied(self) -> tuple[tuple[str, str, ColumnType], ...]:
        """Each tally, the state field of a contribution with its value, and the type of values."""
        return tuple((count.name, own(count.name), count.entry[0].type) for count in self.sums if count.entry)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        """The places of the sums of decimals, which are texts."""
        return {total.name: total.type.places for total in self.sums if total.type.is_decimal}

    def group(self, contribution: State) -> Group | None:
        """The key of a contribution's group, and what it adds there; None if it is in no group."""
        key = contribution.get(GROUP)
        if key is None:
            return None
        if key.startswith(MARK):
            key = REPLACEMENT + key[1:]
        adds: State = {name: contribution.get(field) or nothing for name, field, nothing in self._added}
        for name, field, kind in self._tallied:
            value = contribution.get(field)
            key_of = str if kind is not ColumnType.FLOAT else lambda number: repr(float(number) or 0.0)  # -0.0 is 0.0
            adds[name] = {} if value is None else {key_of(value): 1}
        adds[MEMBERS] = 1
        return key, adds

    def merge(self, group: State, adds: State) -> None:
        """Add what a contribution adds to what others add, in place; sums may have more digits than their columns."""
        for name, number in adds.items():
            held = group.get(name)
            if isinstance(number, dict):
                held = group.setdefault(name, {})
                for key, times in number.items():
                    held[key] = held.get(key, 0) + times
            elif name in self._places:
                group[name] = added(held, number, self._places[name])
            else:
                group[name] = (held or 0) + number

    def patches(self, patches: Iterable[Patch], contributions: Mapping[str, State]) -> list[Patch]:
        """What patches of contributions change in groups, in their order; each has the place of its cause.

        contributions: as they are stored, by key; those that are not there have no patch yet.
        """
        patches_now: list[Patch] = []
        states: dict[str, tuple[State, Group | None]] = {}
        for patch in patches:
            held = states.get(patch.key)
            if held is None:
                stored = contributions.get(patch.key, {})
                held = stored, self.group(stored)
            before, old = held
            after = dict(before)
            self.own.combine(after, patch.fields)
            new = self.group(after)
            states[patch.key] = after, new
            if old != new:
                patches_now += [
                    Patch(key, patch.source, patch.place, fields) for key, fields in self._changes(old, new)
                ]
        return patches_now

    def _changes(self, old: Group | None, new: Group | None) -> Iterator[Group]:
        """What changes in each group, which is there once, if a contribution was in one and is in another now."""
        if old is not None and new is not None and old[0] == new[0]:
            yield new[0], self._difference(new[1], old[1])
            return
        if old is not None:
            yield old[0], self._difference(dict.fromkeys(old[1], 0), old[1])
        if new is not None:
            yield new

    def _difference(self, new: State, old: State) -> State:
        if not self._places and not self._tallied:  # as most are
            return {name: number - old[name] for name, number in new.items()}
        difference: State = {}
        for name, number in new.items():
            if isinstance(old[name], dict):
                times = {key: -times_removed for key, times_removed in old[name].items()}
                for key, times_added in (number or {}).items():
                    times[key] = times.get(key, 0) + times_added
                difference[name] = times
            elif name in self._places:
                difference[name] = decimal_text(EXACT.subtract(Decimal(number), Decimal(old[name])), self._places[name])
            else:
                difference[name] = number - old[name]
        return difference
