"""Lists of rows while they are folded, which grow cheaply, and the compiled source that folds events into them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.expressions import Expression
from headwater.projections.table.items import Entries, LogPlace, items_python
from headwater.projections.table.monoids import Extreme, Keyed, Monoid, Pick, Ranked, Sum

WAITING_ENTRIES: Final = 64
"""Entries that wait at least before they are combined into a list: a list is sorted or copied for each combination."""
SPARE_ENTRIES: Final = 32
"""Entries beyond twice the limit of a list before those beyond the limit are dropped."""
TEXT_PER_ENTRY: Final = 200
INDENT = "    "
Changes = Callable[[Sequence[Monoid], Mapping[str, str], str], list[str]]
"""Makes the lines that combine values, by field, into a row with this name."""


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


class Bounded:
    """A list with a bound, and some entries beyond it.

    by_key: the entries, by what orders them. edge: the last key within the limit; entries beyond it do not count.
    """

    __slots__ = ("_monoid", "_most", "by_key", "edge")

    def __init__(self, monoid: Any) -> None:
        self._monoid, self._most = monoid, 2 * monoid.limit + SPARE_ENTRIES
        self.by_key: dict[Any, Any] = {}
        self.edge: Any = None

    def __len__(self) -> int:
        """Entries, about."""
        return len(self.by_key)

    def put(self, key: Any, entry: Any = None) -> None:
        """Add an entry with a new key."""
        self.by_key[key] = entry
        if len(self.by_key) > self._most:
            within = self.within()
            self.by_key, self.edge = {name: self.by_key[name] for name in within}, self.last_of(within)

    def within(self) -> list[Any]:
        """The keys within the limit."""
        return sorted(self.by_key)[: self._monoid.limit]

    def last_of(self, keys: list[Any]) -> Any:
        """The edge, if these are the keys within the limit."""
        return keys[-1]


class Values(Bounded):
    """The different values of a `Keyed` list without other fields; each is its key."""

    __slots__ = ()

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        return [{self._monoid.key.name: value} for value in self.within()]


class PartRows(Bounded):
    """The parts of a `Keyed` list, each with a slot per field."""

    __slots__ = ("_new",)

    def __init__(self, monoid: Keyed) -> None:
        super().__init__(monoid)
        self._new = [0 if isinstance(inner, Sum) else None for inner in monoid.monoids for _ in inner.fields]

    def begin(self, key: Any) -> list[Any]:
        """A new part, which no event has changed; beyond the edge, it is never shown."""
        part = list(self._new)
        if self.edge is None or key <= self.edge:
            self.put(key, part)
        return part

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        names = [field.name for monoid in self._monoid.monoids for field in monoid.fields]
        return [
            {self._monoid.key.name: key}
            | {name: value for name, value in zip(names, self.by_key[key], strict=True) if value is not None}
            for key in self.within()
        ]


class Ranks(Bounded):
    """The entries of a `Ranked` list, by their keys. edge: only the first part of the key."""

    __slots__ = ()

    def within(self) -> list[Any]:
        limit, keys = self._monoid.limit, sorted(self.by_key)
        return keys[-limit:] if self._monoid.highest else keys[:limit]

    def last_of(self, keys: list[Any]) -> Any:
        return keys[0 if self._monoid.highest else -1][0]

    def state(self) -> list[dict[str, Any]]:
        """The list in the form of rows."""
        names = [field.name for field in self._monoid.keys]
        return [
            dict(zip(names, key, strict=True))
            | {name: value for name, value in self.by_key[key].items() if value is not None}
            for key in self.within()
        ]


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


@dataclass(frozen=True)
class ListCode:
    """reads: by variable, what is read of an event before anything changes. changes: the lines that change the row."""

    reads: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[str] = ()


def list_code(
    monoid: Monoid, number: int, place: str, read: Expression, event: type[Event] | None, changes: Changes
) -> ListCode | None:
    """The code for one list; None if there is none for a list of this kind.

    number: of the monoid. place: its slot in the row.
    """
    if not isinstance(read, Entries) or len(read.parts) != 1 or read.decimals:
        return None
    (part,) = read.parts
    within = monoid.monoids if isinstance(monoid, Keyed) else ()
    sums = {inner.field.name for inner in within if isinstance(inner, Sum)}
    names = _Names(f"l{number}", part, event, sums)
    match monoid:
        case Ranked():
            keys = [key.name for key in monoid.keys]
            first, sign = names.of[keys[0]], ">=" if monoid.highest else "<="
            shown = ", ".join(f"{name!r}: {text}" for name, text in names.of.items() if name not in keys)
            kind = "Ranks"
            lines = [
                f"if listed.edge is None or {first} {sign} listed.edge:",
                f"    listed.put(({''.join(f'{names.of[key]}, ' for key in keys)}), {{{shown}}})",
            ]
        case Keyed() if not monoid.monoids:
            keys, value = [monoid.key.name], names.of[monoid.key.name]
            kind = "Values"
            lines = [
                f"if {value} not in listed.by_key and (listed.edge is None or {value} < listed.edge):",
                f"    listed.put({value})",
            ]
        case Keyed() if all(isinstance(inner, Pick | Sum | Extreme) for inner in monoid.monoids):
            keys, value = [monoid.key.name], names.of[monoid.key.name]
            brought = {name: text for name, text in names.of.items() if name != monoid.key.name}
            kind = "PartRows"
            lines = [
                f"part = listed.by_key.get({value})",
                "if part is None:",
                f"    part = listed.begin({value})",
                *changes(monoid.monoids, brought, "part"),
            ]
        case _:
            return None
    there = [f"{names.of[key]} is not None" for key in keys if names.of[key] in names.reads]
    lines = [
        f"if {' and '.join(there) or 'True'}:",
        f"    listed = {place}",
        "    if listed is None:",
        f"        listed = {place} = {kind}(monoid_{number})",
        *(INDENT + line for line in lines),
    ]
    if read.each is None:
        return ListCode(names.reads, lines)
    through = f"for index, item in enumerate({items_python(read.each, event)})"
    listed = "".join(f"{variable}, " for variable in names.reads)
    texts = "".join(f"{variable}, " for variable in names.reads.values())
    loop = [f"for ({listed}) in l{number}:", *(INDENT + line for line in lines)]
    return ListCode({f"l{number}": f"[({texts}) {through}]"}, loop)


class _Names:
    """The variables of an entry's fields. reads: by variable, its source. sums: fields that are added."""

    def __init__(
        self, prefix: str, part: Mapping[str, Expression], event: type[Event] | None, sums: Collection[str]
    ) -> None:
        self.reads: dict[str, str] = {}
        self.of: dict[str, str] = {}
        for number, (name, read) in enumerate(part.items()):
            text = read.python(event)
            # the place in the log is needed for few events
            if isinstance(read, LogPlace) or (name in sums and text.isdecimal()):
                self.of[name] = text
            else:
                self.of[name] = f"{prefix}_{number}"
                self.reads[self.of[name]] = text
