"""Lists of rows while they are folded, which grow cheaply."""

from __future__ import annotations

from typing import Any, Final

from headwater.projections.table.monoids import Keyed, Monoid, Ranked, Sum

WAITING_ENTRIES: Final = 64
"""Entries that wait at least before they are combined into a list: a list is sorted or copied for each combination."""
SPARE_ENTRIES: Final = 32
"""Entries beyond twice the limit of a list before those beyond the limit are dropped."""
TEXT_PER_ENTRY: Final = 200


class Gathered:
    """A list of a row, and entries that wait to be combined into it.

    Every entry could be combined at once, but then each would sort or copy the whole list.
    """

    __slots__ = ("_monoid", "_name", "_size", "_state", "_waiting")

    def __init__(self, monoid: Monoid) -> None:
        self._monoid, self._name = monoid, monoid.fields[0].name
        self._state: Any = None
        self._waiting: list[dict[str, Any]] = []
        self._size = WAITING_ENTRIES

    def add(self, entries: list[dict[str, Any]]) -> None:
        """Combine an event's entries."""
        self._waiting += entries
        if len(self._waiting) > self._size:
            self._size = max(WAITING_ENTRIES, len(self.state()))

    def __len__(self) -> int:
        """Entries, about."""
        return len(self._waiting) + entries(self._state)

    def state(self) -> Any:
        """The list in the form of rows."""
        if self._waiting:
            self._state = combined(self._monoid, self._name, self._state, self._waiting)
            self._waiting = []
        return self._state


class Values:
    """The different values of a `Keyed` list without other fields.

    seen: these, and some beyond its limit. edge: the last one within the limit; those beyond it do not count.
    """

    __slots__ = ("_monoid", "_most", "edge", "seen")

    def __init__(self, monoid: Keyed) -> None:
        self._monoid, self._most = monoid, 2 * monoid.limit + SPARE_ENTRIES
        self.seen: set[Any] = set()
        self.edge: Any = None

    def __len__(self) -> int:
        """Entries, about."""
        return len(self.seen)

    def take(self, value: Any) -> None:
        """Add a value that is new."""
        self.seen.add(value)
        if len(self.seen) > self._most:
            kept = self._kept()
            self.seen, self.edge = set(kept), kept[-1]

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        name = self._monoid.key.name
        return [{name: value} for value in self._kept()]

    def _kept(self) -> list[Any]:
        return sorted(self.seen)[: self._monoid.limit]


class PartRows:
    """The parts of a `Keyed` list. parts: by key, each with a slot per field, and some beyond its limit."""

    __slots__ = ("_edge", "_monoid", "_most", "_new", "parts")

    def __init__(self, monoid: Keyed) -> None:
        self._monoid, self._most = monoid, 2 * monoid.limit + SPARE_ENTRIES
        self._new = [0 if isinstance(each, Sum) else None for each in monoid.monoids for _ in each.fields]
        self._edge: Any = None
        self.parts: dict[Any, list[Any]] = {}

    def __len__(self) -> int:
        """Entries, about."""
        return len(self.parts)

    def begin(self, key: Any) -> list[Any]:
        """A new part, which no event has changed."""
        part = list(self._new)
        if self._edge is not None and key > self._edge:
            return part  # beyond the limit, it is never shown
        self.parts[key] = part
        if len(self.parts) > self._most:
            kept = self._kept()
            self.parts, self._edge = {each: self.parts[each] for each in kept}, kept[-1]
        return part

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        names = [field.name for each in self._monoid.monoids for field in each.fields]
        return [
            {self._monoid.key.name: key}
            | {name: value for name, value in zip(names, self.parts[key], strict=True) if value is not None}
            for key in self._kept()
        ]

    def _kept(self) -> list[Any]:
        return sorted(self.parts)[: self._monoid.limit]


class Ranks:
    """The entries of a `Ranked` list, and some beyond its limit.

    edge: the first part of the key of the last entry within the limit; entries beyond it do not count.
    """

    __slots__ = ("_held", "_monoid", "_most", "edge")

    def __init__(self, monoid: Ranked) -> None:
        self._monoid, self._most = monoid, 2 * monoid.limit + SPARE_ENTRIES
        self._held: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.edge: Any = None

    def __len__(self) -> int:
        """Entries, about."""
        return len(self._held)

    def take(self, key: tuple[Any, ...], shown: dict[str, Any]) -> None:
        """Add an entry."""
        self._held[key] = shown
        if len(self._held) > self._most:
            kept = self._kept()
            self._held = {each: self._held[each] for each in kept}
            self.edge = kept[0 if self._monoid.highest else -1][0]

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        names = [field.name for field in self._monoid.keys]
        return [
            dict(zip(names, key, strict=True))
            | {name: value for name, value in self._held[key].items() if value is not None}
            for key in self._kept()
        ]

    def _kept(self) -> list[tuple[Any, ...]]:
        limit, held = self._monoid.limit, sorted(self._held)
        return held[-limit:] if self._monoid.highest else held[:limit]


def entries(value: Any) -> int:
    """How many entries a list of a row has, in any form; a text counts as few, because its characters are small."""
    if value is None:
        return 0
    return 1 + len(value) // TEXT_PER_ENTRY if isinstance(value, str) else len(value)


def combined(monoid: Monoid, name: str, ours: Any, theirs: Any) -> Any:
    """Two states of a monoid of one field, combined."""
    row = {name: ours}
    monoid.combine(row, {name: theirs})
    return row[name]
