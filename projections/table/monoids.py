"""How two parts of a row combine: monoids, which are associative with null as their identity.

A fold (`table/folds`) converts one event into the form that a monoid combines. So one declaration can run event by
event (live) and over parts of the log at once (replay).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from headwater.eventlog.integers import fits_64_bits
from headwater.projections.table.decimals import added, extreme, fits_digits
from headwater.projections.table.types import SPARK_TYPES, ColumnType, format_time

State = dict[str, Any]
"""The state fields of one row, or of one patch, by name; a field that no event changed is absent or None."""

MEMBERS: Final = "_members"
REGISTERS: Final = 2048
"""Standard error 1.04 / sqrt(registers): 2.3 per cent."""
RANK_BITS: Final = 40
ZERO: Final = 48
"""A register is the character after "0" by its rank: "0" to "X", none of which JSON escapes."""
EMPTY: Final = chr(ZERO) * REGISTERS


@dataclass(frozen=True, slots=True)
class StateField:
    """One stored field of a row. A hidden field's name starts with an underscore.

    entry: the fields of each entry, if the field is a list of entries (COUNTS, SKETCH and ENTRIES).
    """

    name: str
    type: ColumnType
    ordering: bool = False
    entry: tuple[StateField, ...] = ()

    @property
    def spark_type(self) -> str:
        """The type of its values in Spark SQL, if it has no entries."""
        return SPARK_TYPES[self.type]


class Monoid(Protocol):
    """A group of state fields that combine together."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """The fields, in a fixed order."""

    def combine(self, row: State, patch: State) -> None:
        """Combine `patch` into `row`, in place. Reads and writes only this monoid's fields; `patch` does not change."""


@runtime_checkable
class Entries(Monoid, Protocol):
    """A monoid of one field whose patches are lists: the entries of several patches together are a patch."""

    field: StateField

    @property
    def keys(self) -> tuple[StateField, ...]:
        """The fields that are the key of an entry."""


@dataclass(frozen=True, slots=True)
class OfField:
    """A monoid of one field."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        """See Monoid; `combined` says what becomes of two values that are there."""
        theirs = patch.get(self.field.name)
        if theirs is not None:
            row[self.field.name] = self.combined(row.get(self.field.name), theirs)

    def combined(self, ours: Any, theirs: Any) -> Any:
        """The value in the row (None: not there yet) with that of a patch."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Pick:
    """Keep the values with the highest (or lowest) ordering key: `last` and `first`.

    The key may have several parts, the most significant first; if that part is null, the event does not count.
    """

    order: tuple[StateField, ...]
    values: tuple[StateField, ...]
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (*self.order, *self.values)

    def combine(self, row: State, patch: State) -> None:
        first, *more = self.order
        theirs, ours = patch.get(first.name), row.get(first.name)
        if theirs is None:
            return
        if more and theirs == ours:
            theirs, ours = ([of[state_field.name] for state_field in more] for of in (patch, row))
        if ours is not None and (theirs < ours if self.highest else theirs > ours):
            return
        for field in self.order:
            row[field.name] = patch.get(field.name)
        for field in self.values:
            row[field.name] = patch.get(field.name)


@dataclass(frozen=True, slots=True)
class Sum(OfField):
    """Add integers or decimals, from 0: `add` and `count`. Floats are refused, because their sum depends on the order.

    Raises OverflowError if a sum has more than 64 bits, or one of decimals, which are texts, more digits than its type.
    is_bounded: false if it may have them for now.
    """

    is_bounded: bool = True

    def combine(self, row: State, patch: State) -> None:
        name, kind = self.field.name, self.field.type
        if not kind.is_decimal:
            number = (row.get(name) or 0) + (patch.get(name) or 0)
            if self.is_bounded and not fits_64_bits(number):
                raise OverflowError(f'the sum "{name}" has more than 64 bits')
            row[name] = number
            return
        total = added(row.get(name), patch.get(name), kind.places)
        if self.is_bounded and not fits_digits(total, kind.digits):
            raise OverflowError(f'the sum "{name}" has more than the {kind.digits} digits of its column')
        row[name] = total


@dataclass(frozen=True, slots=True)
class Extreme(OfField):
    """Keep the highest (or lowest) value of all events: `maximum` and `minimum`. Values are never removed."""

    highest: bool

    def combined(self, ours: Any, theirs: Any) -> Any:
        if ours is None:
            return theirs
        if self.field.type.is_decimal:
            return extreme(ours, theirs, highest=self.highest)
        return (max if self.highest else min)(ours, theirs)


@dataclass(frozen=True, slots=True)
class Members:
    """Add the number of members; a group without any is deleted. A row that is no group says whether it is.

    deleted: the state field that says so.
    """

    deleted: str

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (StateField(MEMBERS, ColumnType.INTEGER), StateField(self.deleted, ColumnType.BOOLEAN))

    def combine(self, row: State, patch: State) -> None:
        more = patch.get(MEMBERS)
        if more is not None:
            row[MEMBERS] = (row.get(MEMBERS) or 0) + more
            row[self.deleted] = row[MEMBERS] == 0
        elif patch.get(self.deleted) is not None:
            row[self.deleted] = patch[self.deleted]


def tally_field(name: str, kind: ColumnType) -> StateField:
    """The state field of a tally of values of this type."""
    entry = (StateField("v", kind), StateField("n", ColumnType.INTEGER))
    return StateField(name, ColumnType.COUNTS, entry=entry)


@dataclass(frozen=True, slots=True)
class Tally(OfField):
    """The number of times that each value is there: `{"350000": 2}`; a value with 0 is dropped.

    Values can be removed, so a minimum over it rises again. It grows with the number of distinct values. A patch has
    `[{"v": 350000, "n": 1}, …]`, a row has the object; `combine` accepts both.
    """

    @property
    def keys(self) -> tuple[StateField, ...]:
        return self.field.entry[:1]

    def combined(self, ours: Any, theirs: Any) -> Any:
        counts = dict(ours or {})
        for key, number in _entries(theirs):
            counts[key] = counts.get(key, 0) + number
        return {key: number for key, number in counts.items() if number}


def _entries(tally: dict[str, int] | list[dict[str, Any]]) -> list[tuple[str, int]]:
    if isinstance(tally, dict):
        return list(tally.items())
    return [(str(entry["v"]), entry["n"]) for entry in tally]


def sketch_field(name: str) -> StateField:
    """The state field of a sketch; a patch has entries of register and rank, a row has one character per register."""
    entry = (StateField("v", ColumnType.INTEGER), StateField("n", ColumnType.INTEGER))
    return StateField(name, ColumnType.SKETCH, entry=entry)


@dataclass(frozen=True, slots=True)
class Sketch(OfField):
    """The highest rank of each register. Values are never removed."""

    @property
    def keys(self) -> tuple[StateField, ...]:
        return self.field.entry[:1]

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if not theirs:
            return
        ours = row.get(self.field.name) or EMPTY
        if isinstance(theirs, str):
            row[self.field.name] = "".join(map(max, ours, theirs))
        else:
            row[self.field.name] = dense(((count["v"], count["n"]) for count in theirs), ours)


def register_of(value: Any) -> dict[str, int]:
    """The register of a value (a text or an integer), and its rank there."""
    digest = hashlib.md5(str(value).encode(), usedforsecurity=False).hexdigest()
    return {"v": int(digest[:3], 16) >> 1, "n": RANK_BITS + 1 - max(1, int(digest[3:13], 16).bit_length())}


def register_spark(value: str) -> str:
    """`register_of` in Spark SQL."""
    digest = f"md5(cast(cast({value} as string) as binary))"
    register = f"cast(shiftright(cast(conv(substr({digest}, 1, 3), 16, 10) as int), 1) as bigint)"
    rank = f"cast({RANK_BITS + 1} - length(conv(substr({digest}, 4, 10), 16, 2)) as bigint)"
    return f"struct({register} as v, {rank} as n)"


def dense(entries: Iterable[tuple[int, int]], sketch: str = EMPTY) -> str:
    """`sketch` updated with these registers and ranks, in the form of a row."""
    ranks = bytearray(sketch, "ascii")
    for register, rank in entries:
        ranks[register] = max(ranks[register], ZERO + rank)
    return ranks.decode("ascii")


def estimate(sketch: str | None) -> int:
    """The approximate number of different values in a sketch."""
    if not sketch:
        return 0
    ranks = [character - ZERO for character in sketch.encode("ascii")]
    # sums of powers of two within 53 bits: exact in every order
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / sum(2.0**-rank for rank in ranks)
    unused = ranks.count(0)
    if raw <= 2.5 * REGISTERS and unused:
        raw = REGISTERS * math.log(REGISTERS / unused)
    return math.floor(raw + 0.5)


@dataclass(frozen=True, slots=True)
class Ranked(OfField):
    """The entries with the highest (or lowest) keys, at most `limit`, in the order of their keys: `collect` and `top`.

    An event adds one entry, and a key has one entry only, because the position in the log is part of it.
    """

    keys: tuple[StateField, ...]
    limit: int
    highest: bool

    def combined(self, ours: Any, theirs: Any) -> Any:
        by_key = {tuple(entry[key.name] for key in self.keys): entry for entry in (*(ours or ()), *theirs)}
        keys = sorted(by_key)[-self.limit :] if self.highest else sorted(by_key)[: self.limit]
        return [by_key[key] for key in keys]


@dataclass(frozen=True, slots=True)
class Keyed(OfField):
    """Parts of a row, each with a key and with fields that combine by their own monoids: `distinct` and `nested`.

    limit: the parts with the lowest keys are kept. A key is never removed (a part is only marked as deleted), so a part
    beyond the limit can never come back.
    """

    key: StateField
    monoids: tuple[Monoid, ...]
    limit: int

    @property
    def keys(self) -> tuple[StateField, ...]:
        return (self.key,)

    def combined(self, ours: Any, theirs: Any) -> Any:
        parts = {entry[self.key.name]: entry for entry in ours or ()}
        for brought in theirs:
            key = brought[self.key.name]
            part = dict(parts.get(key, {self.key.name: key}))
            for monoid in self.monoids:
                monoid.combine(part, brought)
            parts[key] = {name: value for name, value in part.items() if value is not None}
        return [parts[key] for key in sorted(parts)[: self.limit]]


def row_value(value: Any, kind: ColumnType) -> Any:
    """The result of a Spark fold, as Arrow returns it, in the form of rows."""
    match value:
        case datetime():
            return format_time(value)
        case list() if kind is ColumnType.COUNTS:
            return {str(count["v"]): count["n"] for count in value if count["n"]}
        case list() if kind is ColumnType.SKETCH:
            return dense((count["v"], count["n"]) for count in value)
        case list() if kind is ColumnType.ENTRIES:
            entries = ({name: row_value(item, ColumnType.TEXT) for name, item in entry.items()} for entry in value)
            return [{name: item for name, item in entry.items() if item is not None} for entry in entries]
        case {"lat": None} | {"lon": None}:
            return None
        case _:
            return value


COMPILED: Final = (Pick, Sum, Extreme, Ranked, Keyed)
"""Rebuilds combine these by compiled code in place of `combine`."""


def must_combine_as_compiled(monoid: Monoid) -> None:
    """Raise ValueError if a monoid inherits from one that is compiled, and combines in another way."""
    if not isinstance(monoid, COMPILED):
        return
    words = ("combine", "combined")
    methods = {getattr(kind, word, None) for kind in COMPILED for word in words}
    if any(getattr(type(monoid), word, None) not in methods for word in words):
        parent = next(kind.__name__ for kind in type(monoid).__mro__ if kind in COMPILED)
        raise ValueError(
            f"its monoid {type(monoid).__name__} inherits from {parent}, as which rebuilds combine it, and overrides "
            "combine: inherit from no monoid, and write its fields and combine"
        )


def in_bulk(monoid: Monoid) -> Monoid:
    """The monoid with sums that may have too many digits: raising would end a task with all its other rows."""
    match monoid:
        case Sum():
            return replace(monoid, is_bounded=False)
        case Keyed():
            return replace(monoid, monoids=tuple(map(in_bulk, monoid.monoids)))
        case _:
            return monoid
