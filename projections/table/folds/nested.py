"""Parts of a row that are rows themselves, such as the lines of an order: `nested`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import shown
from headwater.projections.limits import MAX_PARTS
from headwater.projections.table.declared import storage_word
from headwater.projections.table.expressions import Expression, Readable, Value
from headwater.projections.table.folds.arranging import Arrangement, arrange
from headwater.projections.table.folds.fold import (
    ByKey,
    Case,
    Derived,
    Fold,
    Ordering,
    Stored,
    case_text,
    entry_name,
    must_be_case,
    one_kind,
    positive,
    read,
)
from headwater.projections.table.folds.lists import countable
from headwater.projections.table.items import Entries, Item, ItemIndex
from headwater.projections.table.layout import Values
from headwater.projections.table.mistaken import in_views, must_be, refuse_mistaken
from headwater.projections.table.monoids import Keyed, StateField
from headwater.projections.table.types import ColumnType

PLAIN: Final = "a part takes plain folds only, each once: last, first, add, count, maximum, minimum"


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
        if any(isinstance(each, Derived) for each in self.columns.values()):
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
        if any(isinstance(each, Item) for each in self.key.values()):
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
        part = {each: Value(0) if read == ItemIndex() else read for each, read in part.items()}
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
    _check_parts(key_name, columns, deleted_by, restored_by)
    parts = Parts(
        key_name,
        read(key),
        columns,
        tuple(deleted_by),
        tuple(restored_by),
        limit,
    )
    return Derived((parts,), ColumnType.LIST, partial(Values, names=(key_name, *columns)), parts.check)


def _check_parts(key_name: object, columns: object, deleted_by: object, restored_by: object) -> None:
    """Raise ValueError for what is of a wrong type."""
    must_be(str, key_name, "is given {} as the name of its key, which is no text")
    for name, fold in must_be(Mapping, columns, "has the columns {}, which do not say their names").items():
        refuse_mistaken(f'has a wrong column "{name}"', fold)
        if isinstance(fold, type) or not (hasattr(fold, "cases") or isinstance(fold, Derived)):
            raise ValueError(f'has the column "{name}", which is {shown(fold)} and no fold')
    for word, events in (("deleted_by", deleted_by), ("restored_by", restored_by)):
        for event in must_be((tuple, list), events, f"has {word}={{}}, which is no tuple of classes of events"):
            must_be_case(event)
