"""Columns of another view's rows, looked up when a row is read: they are not stored, folded or replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.eventlog.declaring import must_be_text, word
from headwater.projections.table.json_text import JsonForms
from headwater.projections.table.mistaken import must_be
from headwater.projections.table.types import ColumnType

if TYPE_CHECKING:
    from headwater.projections.view import View

EXAMPLE: Final = 'Lookup("owners", on="owner", columns={"owner_name": "name"})'


@word(EXAMPLE)
@dataclass(frozen=True)
class Lookup:
    """Columns of a row of another view, with their values at the time of reading.

    view: the name of the other view; any package may declare it. on: the column of this view with the key of the other
    row: text, or this view's own key. columns: by their names here, the stored columns of the other view.
    """

    view: str
    on: str
    columns: Mapping[str, str]


def by_column(lookups: Sequence[Lookup], types: Mapping[str, ColumnType]) -> dict[str, Lookup]:
    """The lookup of each looked-up column of a view with these stored columns.

    Raises ValueError saying what to change, as far as the view alone shows it.
    """
    by_name: dict[str, Lookup] = {}
    for lookup in lookups:
        subject = f'its lookup in "{lookup.view}"'
        if not lookup.columns:
            raise ValueError(f'{subject} has no columns: add columns={{"name here": "column there"}}')
        if types.get(lookup.on) is not ColumnType.TEXT:
            actual = f"{types[lookup.on].value}, not text" if lookup.on in types else "not a stored column of this view"
            texts = ", ".join(name for name, kind in types.items() if kind is ColumnType.TEXT)
            raise ValueError(f'{subject} uses the key in "{lookup.on}", which is {actual}: use one of {texts}')
        for name in lookup.columns:
            if name in types or name in by_name:
                raise ValueError(f'{subject} adds "{name}", but this view already has this column: rename one')
            by_name[name] = lookup
    return by_name


def check_lookup(declared: object) -> None:
    """Raise ValueError if it is no lookup, or has values of wrong types."""
    lookup: Lookup = must_be(Lookup, declared, f"lookups has {{}}, which is no lookup: write {EXAMPLE}")
    must_be_text("the view of its lookup", lookup.view, EXAMPLE)
    must_be_text(f'on, in its lookup in "{lookup.view}",', lookup.on, EXAMPLE)
    must_be(
        Mapping,
        lookup.columns,
        f'its lookup in "{lookup.view}" has columns={{}}, which is no mapping: write {EXAMPLE}',
    )
    for name, column in lookup.columns.items():
        must_be_text(f'a column of its lookup in "{lookup.view}"', name, EXAMPLE)
        must_be_text(f'"{name}" of its lookup in "{lookup.view}"', column, EXAMPLE)


def looked_up_types(view: View, views: Mapping[str, View]) -> dict[str, ColumnType]:
    """The type of each column that `view` looks up in others of `views`; raises ValueError saying what to change."""
    return {name: _type(lookup.view, lookup.columns[name], views) for name, lookup in view.looked_up.items()}


def looked_up_forms(view: View, views: Mapping[str, View]) -> JsonForms:
    """The looked-up columns with JSON texts."""
    return {
        name: form
        for name, lookup in view.looked_up.items()
        if lookup.view in views and (form := views[lookup.view].json_forms.get(lookup.columns[name])) is not None
    }


def _type(name: str, column: str, views: Mapping[str, View]) -> ColumnType:
    other = views.get(name)
    if other is None:
        known = ", ".join(sorted(views))
        raise ValueError(f'it looks up "{column}" in "{name}", which is not a declared view: use one of {known}')
    if column in other.looked_up:
        source = other.looked_up[column].view
        raise ValueError(
            f'it looks up "{column}" in "{name}", which looks it up in "{source}" itself: use "{source}" instead'
        )
    if column not in other.types:
        known = ", ".join(other.types)
        raise ValueError(f'it looks up "{column}" in "{name}", which has no such column: use one of {known}')
    return other.types[column]
