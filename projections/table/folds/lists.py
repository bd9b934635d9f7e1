"""Folds of several values: lists in an order, counted values, and parts that are rows themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import shown
from headwater.projections.limits import MAX_DISTINCT, MAX_LISTED, MAX_PARTS
from headwater.projections.table.computations import Readable, expression
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Value
from headwater.projections.table.folds.arranging import Arrangement, arrange
from headwater.projections.table.folds.fold import (
    ByKey,
    Case,
    Cases,
    Derived,
    Fold,
    Ordering,
    Stored,
    case_text,
    checked_cases,
    entry_name,
    event_of,
    must_be_case,
    one_kind,
    positive,
    read,
)
from headwater.projections.table.folds.single import ordered, rank
from headwater.projections.table.items import Entries, Item, ItemIndex, Register
from headwater.projections.table.json_text import SINGLE
from headwater.projections.table.layout import Edge, Estimate, Held, Number, Values
from headwater.projections.table.mistaken import in_views, must_be, refuse_mistaken
from headwater.projections.table.monoids import Keyed, Ranked, Sketch, StateField, Tally, sketch_field, tally_field
from headwater.projections.table.types import ColumnType

ORDER: Final = "_order"

Entry = Readable | Mapping[str, Readable]
"""What a list shows of an event: one value, or several by name."""

COUNTED = (ColumnType.TEXT, ColumnType.INTEGER)
PLAIN: Final = "a part takes plain folds only, each once: last, first, add, count, maximum, minimum"


@storage_word("Listed")
@dataclass(frozen=True, eq=False)
class BoundedList:
    """A bounded list with an entry per event. See `collect` and `top`."""

    cases: Mapping[Case, Mapping[str, Expression]]
    limit: int
    highest: bool
    by: Cases | None = None

    def kind(self) -> ColumnType:
        return ColumnType.LIST

    def stored(self, name: str, ordering: Ordering) -> Stored:
        limit = positive(self.limit, MAX_LISTED)
        values = fields_of(self.cases)
        keys = ordered(ordering, self.by, next(iter(self.cases))).fields(ORDER)
        entry = (*keys, *values)
        lifted: dict[Case, Mapping[str, Expression]] = {}
        for case, values_read in self.cases.items():
            brought = ordered(ordering, self.by, case).lifted(ORDER) | dict(values_read)
            lifted[case] = {name: Entries(entry, (brought,), tuple(key.name for key in keys))}
        return Stored(Ranked(StateField(name, ColumnType.ENTRIES, entry=entry), keys, limit, self.highest), lifted)


@in_views('collect({Sold: {"price": "price"}}, limit=10)')
def collect(cases: Mapping[Case, Entry], limit: int = 100, *, newest: bool = True) -> Derived:
    """A list with an entry per event, in the order of the log (like `last`).

    cases: by event, what an entry shows: one value, or an object as in `{"price": "price", "at": envelope("time")}`.
    limit: of entries that the row keeps, at most 1,000; the oldest others are dropped, or the newest if `newest` is
    false. The position in the log decides, so live and replay drop the same entries.
    """
    must_be(bool, newest, "has newest={}, which is neither True nor False")
    return _listed(cases, limit, highest=newest, by=None, best_first=False)


@in_views('top(10, {Sold: "buyer"}, by="price")')
def top(
    limit: int, cases: Mapping[Case, Entry], by: Readable | Mapping[Case, Readable], *, highest: bool = True
) -> Derived:
    """The `limit` (at most 1,000) entries with the highest values of `by`, best first; the lowest if not `highest`.

    cases: what an entry shows, as for `collect`. by: a number or time; events for which it is null are left out. Of
    equal values, the later one is higher. Entries are never removed. For the top of changing values (the most expensive
    listings at today's prices) declare an index on the table, and sort when reading.
    """
    must_be(bool, highest, "has highest={}, which is neither True nor False")
    return _listed(cases, limit, highest=highest, by=rank(checked_cases(cases), by), best_first=highest)


def fields_of(cases: Mapping[Case, Mapping[str, Expression]]) -> tuple[StateField, ...]:
    """The common fields of all cases; raises ValueError if they differ."""
    names = [tuple(shown) for shown in cases.values()]
    if not names:
        raise ValueError("a fold needs at least one event")
    every = sorted({name for pair in names for name in pair})
    if any(set(name) != set(every) for name in names):
        raise ValueError(f"its cases show different fields: {', '.join(every)}")
    kinds = {name: one_kind({case: shown[name] for case, shown in cases.items()}) for name in names[0]}
    return tuple(StateField(name if name == SINGLE else entry_name(name), kind) for name, kind in kinds.items())


def _listed(cases: Mapping[Case, Entry], limit: int, *, highest: bool, by: Cases | None, best_first: bool) -> Derived:
    entries = {case: _entry(shown) for case, shown in checked_cases(cases).items()}
    names = next(iter(entries.values()), {})
    shown = partial(Values, names=() if SINGLE in names else tuple(names), best_first=best_first)
    return Derived((BoundedList(entries, limit, highest, by),), ColumnType.LIST, shown)


def _entry(shown: Entry) -> Mapping[str, Expression]:
    if isinstance(shown, Mapping):
        return {name: expression(readable) for name, readable in shown.items()}
    return {SINGLE: expression(shown)}


@storage_word("Members")
@dataclass(frozen=True, eq=False)
class Members:
    """The current values, and how many times each is there. See `members`."""

    cases: Mapping[Case, tuple[tuple[int, Expression], ...]]

    def kind(self) -> ColumnType:
        raise ValueError("it is members(): wrap it in lowest(), highest() or distinct()")

    def value_kind(self) -> ColumnType:
        """The type of the values."""
        kinds = {part.kind(event_of(case)) for case, parts in self.cases.items() for _, part in parts}
        if len(kinds) != 1:
            raise ValueError(f"members have one type, not {sorted(kind.value for kind in kinds)}")
        return countable(kinds.pop())

    def must_be_numbers(self) -> None:
        """Raise ValueError if the values have no order."""
        if self.value_kind() is not ColumnType.INTEGER:
            raise ValueError("lowest() and highest() need integers")

    def stored(self, name: str, ordering: Ordering) -> Stored:
        field = tally_field(name, self.value_kind())
        lifted = {
            case: {name: Entries(field.entry, tuple({"v": part, "n": Value(number)} for number, part in parts), ("v",))}
            for case, parts in self.cases.items()
        }
        return Stored(Tally(field), lifted)


@storage_word("Seen")
@dataclass(frozen=True, eq=False)
class Seen:
    """The different values of all events, up to a limit those that sort first. See `distinct`."""

    cases: Cases
    limit: int

    def kind(self) -> ColumnType:
        return countable(one_kind(self.cases))

    def stored(self, name: str, ordering: Ordering) -> Stored:
        key = StateField(SINGLE, self.kind())
        field = StateField(name, ColumnType.ENTRIES, entry=(key,))
        lifted = {
            case: {name: Entries((key,), ({SINGLE: case_value},), (SINGLE,))} for case, case_value in self.cases.items()
        }
        return Stored(Keyed(field, key, (), positive(self.limit, MAX_DISTINCT)), lifted)


@storage_word("Sketched")
@dataclass(frozen=True, eq=False)
class Sketched:
    """The approximate number of different values of all events. See `approximate_distinct`."""

    cases: Cases

    def kind(self) -> ColumnType:
        return countable(one_kind(self.cases))

    def stored(self, name: str, ordering: Ordering) -> Stored:
        self.kind()
        lifted = {case: {name: Register(case_value)} for case, case_value in self.cases.items()}
        return Stored(Sketch(sketch_field(name)), lifted)


@in_views('members({Listed: [(1, "price")], Sold: [(-1, "price")]})')
def members(cases: Mapping[Case, Sequence[tuple[int, Readable]]]) -> Members:
    """The current integers or texts: each event adds some (+1) and removes some (-1).

    The row keeps every distinct current value, without a limit, because a dropped value could not be removed later. Use
    it if there are few (the asking prices of a city), and sort by an index of the table if there are many. It is not a
    column itself: read it with `lowest`, `highest` and `distinct`.
    """
    return Members(
        {
            event: tuple((number, expression(readable)) for number, readable in _changes(changes))
            for event, changes in checked_cases(cases).items()
        }
    )


@in_views("lowest(members({…}))")
def lowest(of: Members) -> Derived:
    """The lowest of the current integers; null if there is none."""
    return _edge(of, highest=False)


@in_views("highest(members({…}))")
def highest(of: Members) -> Derived:
    """The highest of the current integers; null if there is none."""
    return _edge(of, highest=True)


@in_views('distinct({Sold: "buyer"})')
def distinct(of: Members | Mapping[Case, Readable], limit: int = 1_000) -> Derived:
    """The exact number of different values (texts or integers): current ones of `members`, or of all events.

    limit: of the values of all events, the row keeps this many, at most 10,000; at `limit` the column stays, and means
    "that many or more". See `approximate_distinct` for more values, and `members` for values that are removed again.
    """
    if isinstance(of, Members):
        return Derived((of,), ColumnType.INTEGER, Held)
    return Derived((Seen(read(of), limit),), ColumnType.INTEGER, Number)


@in_views('approximate_distinct({Sold: "buyer"})')
def approximate_distinct(cases: Mapping[Case, Readable]) -> Derived:
    """The number of different values (texts or integers) of these events, with a standard error of 2.3 per cent.

    A HyperLogLog sketch of 2 KB per row, however many values there are. Live and replay give the same number.
    """
    return Derived((Sketched(read(cases)),), ColumnType.INTEGER, Estimate)


def countable(kind: ColumnType) -> ColumnType:
    """`kind`, if all stores distinguish its values in the same way; raises ValueError."""
    if kind not in COUNTED:
        raise ValueError(f"a {kind.value} cannot be counted by value: use texts or integers")
    return kind


def _changes(changes: Sequence[tuple[int, Readable]]) -> Sequence[tuple[int, Readable]]:
    for change in must_be((tuple, list), changes, "is given {}, which is no list of changes"):
        if not (isinstance(change, tuple | list) and len(change) == 2 and change[0] in (1, -1)):
            raise ValueError(f"is given {shown(change)}, which is no pair of 1 or -1 and a value")
    return changes


def _edge(of: Members, *, highest: bool) -> Derived:
    must_be(Members, of, "is given {}, which is not members()")
    return Derived((of,), ColumnType.INTEGER, partial(Edge, highest=highest), of.must_be_numbers)


@storage_word("Parts")
@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of a row, each with its own key and columns. See `nested`."""

    key_name: str
    key: Mapping[Case, Expression]
    columns: Mapping[str, Fold]
    deleted_by: tuple[type[Event] | ByKey, ...]
    restored_by: tuple[type[Event] | ByKey, ...]
    limit: int

    @property
    def cases(self) -> Mapping[Case, Expression]:
        return self.key

    def kind(self) -> ColumnType:
        return ColumnType.LIST

    def check(self) -> None:
        """Raise ValueError if an event that a part folds does not name the part."""
        if any(isinstance(column, Derived) for column in self.columns.values()):
            raise ValueError(PLAIN)
        used = {case for fold in self.columns.values() for case in fold.cases} | {*self.deleted_by, *self.restored_by}
        lost = sorted(str(case) if isinstance(case, ByKey) else f'"{case_text(case)}"' for case in used - {*self.key})
        if lost:
            raise ValueError(f"its key has no {lost[0]}: add which part that event changes")

    def stored(self, name: str, ordering: Ordering) -> Stored:
        limit = positive(self.limit, MAX_PARTS)
        key = StateField(entry_name(self.key_name), countable(one_kind(self.key)))
        if key.name in self.columns:
            raise ValueError(f'the key "{key.name}" is already a column: remove it')
        if any(isinstance(part, Item) for part in self.key.values()):
            if (ColumnType.INTEGER, ItemIndex()) in ordering.parts:
                raise ValueError(
                    "its view already goes through a list with `each`: use plain fields as the key of its parts"
                )
            # an event may change one part twice
            ordering = ordering.within((ColumnType.INTEGER, ItemIndex()))
        columns = {entry_name(column): fold for column, fold in self.columns.items()}
        arranged = arrange(columns, ordering, self.deleted_by, self.restored_by)
        layout = arranged.layout
        if any(field.entry for field in layout.fields) or len(layout.types) > len({*map(id, columns.values())}):
            raise ValueError(PLAIN)
        field = StateField(name, ColumnType.ENTRIES, entry=(key, *layout.fields))
        monoid = Keyed(field, key, layout.monoids, limit)
        return Stored(monoid, {case: {name: self._brought(case, field, arranged)} for case in self.key})

    def _brought(self, case: Case, field: StateField, arranged: Arrangement) -> Entries:
        key, name = self.key[case], field.entry[0].name
        part = {name: key, **arranged.lifted(case)}
        if isinstance(key, Item):
            return Entries(field.entry, (part,), (name,), key.list)
        # one part, so there is no index
        part = {name: Value(0) if read == ItemIndex() else read for name, read in part.items()}
        return Entries(field.entry, (part,), (name,))


@in_views('nested("sku", {Sold: "sku"}, {"pieces": add({Sold: "pieces"})})')
def nested(
    key_name: str,
    key: Mapping[Case, Readable],
    columns: Mapping[str, Fold],
    *,
    deleted_by: Sequence[type[Event] | ByKey] = (),
    restored_by: Sequence[type[Event] | ByKey] = (),
    limit: int = 100,
) -> Derived:
    """A list of parts of the row, such as the lines of an order, in the order of their keys.

    key_name: the name of the key in each part.
    key: by event, which part it changes: a text or an integer. If it is an `item("lines", "sku")`, the event changes a
    part for each item of that list, and its columns also read items.
    columns: folds of single values (`last`, `first`, `add`, `count`, `maximum`, `minimum`) over these events.
    deleted_by, restored_by: events that delete their parts, and restore them; the latest one decides.
    limit: of parts that the row keeps, including deleted ones, at most 1,000: those with the lowest keys.
    """
    must_be(str, key_name, "is given {} as the name of its key, which is no text")
    for name, fold in must_be(Mapping, columns, "has the columns {}, which do not say their names").items():
        refuse_mistaken(f'has a wrong column "{name}"', fold)
        if isinstance(fold, type) or not (hasattr(fold, "cases") or isinstance(fold, Derived)):
            raise ValueError(f'has the column "{name}", which is {shown(fold)} and no fold')
    for word, events in (("deleted_by", deleted_by), ("restored_by", restored_by)):
        for event in must_be((tuple, list), events, f"has {word}={{}}, which is no tuple of classes of events"):
            must_be_case(event)
    parts = Parts(
        key_name,
        read(key),
        columns,
        tuple(deleted_by),
        tuple(restored_by),
        limit,
    )
    return Derived((parts,), ColumnType.LIST, partial(Values, names=(key_name, *columns)), parts.check)
