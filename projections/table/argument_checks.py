"""Checks of the types of what views are declared with; each raises ValueError that says what to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import must_be_text, must_be_version, shown
from headwater.projections.table.by_key import ByKey
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.folds.fold import Derived
from headwater.projections.table.lookups import check_lookup
from headwater.projections.table.mistaken import Mistaken
from headwater.projections.table.readable import check_readable_types
from headwater.projections.table.row_keys import check_key_types
from headwater.projections.table.rows import is_row_class


class Shared(Protocol):
    """What every kind of view is declared with."""

    @property
    def stores(self) -> tuple[DeclaredStore, ...]: ...
    @property
    def version(self) -> int: ...
    @property
    def key_name(self) -> str: ...
    @property
    def doc(self) -> str: ...
    @property
    def lookups(self) -> Any: ...
    @property
    def readable_by(self) -> Any: ...


def as_stores(stores: Any) -> Any:
    """A tuple of the stores, also if one store is given alone, or a list of them."""
    return (stores,) if isinstance(stores, DeclaredStore) else tuple(stores) if isinstance(stores, list) else stores


def check_shared(view: Shared) -> None:
    """Check what every kind of view is declared with."""
    if not isinstance(view.stores, tuple):
        raise ValueError(f"stores={shown(view.stores)} is no store: write stores=(Postgres(),)")
    for store in view.stores:
        if isinstance(store, type) and issubclass(store, DeclaredStore):
            raise ValueError(f"stores has the class {store.__name__}: write stores=({store.__name__}(),)")
        if not isinstance(store, DeclaredStore):
            raise ValueError(f"stores has {shown(store)}, which is no store: write stores=(Postgres(),)")
    names = [store.name for store in view.stores]
    for number, store in enumerate(view.stores):
        if store.name in names[:number]:
            raise ValueError(f"stores has {type(store).__name__}() twice: remove one")
    must_be_version("version", view.version)
    if not isinstance(view.key_name, str):
        raise ValueError(f'key_name={shown(view.key_name)} is no text: write key_name="id"')
    if not isinstance(view.doc, str):
        raise ValueError(f'doc={shown(view.doc)} is no text: write doc="One line for users."')
    if not isinstance(view.lookups, tuple | list):
        raise ValueError(
            f"lookups={shown(view.lookups)} is no tuple of lookups: "
            'write lookups=(Lookup("owners", on="owner", columns={"owner_name": "name"}),)'
        )
    for lookup in view.lookups:
        check_lookup(lookup)
    check_readable_types(view.readable_by)


def check_types(
    key: object, columns: object, deleted_by: object, restored_by: object, where: object, each: object
) -> None:
    """Check the fields of a TableView."""
    check_key_types(key)
    if not isinstance(columns, Mapping):
        raise ValueError(f'columns={shown(columns)} is no mapping: write columns={{"accounts": count(Opened)}}')
    for name, column in columns.items():
        _check_column(name, column)
    for word, events in (("deleted_by", deleted_by), ("restored_by", restored_by)):
        _check_events(word, events)
    _check_where(where)
    _check_each(each)


def _check_column(name: object, column: object) -> None:
    if isinstance(column, Mistaken):
        raise ValueError(f'column "{name}": {column.problem}')
    if isinstance(column, Derived):
        return
    if isinstance(column, type) or not (hasattr(column, "cases") and hasattr(column, "stored")):
        example = "count(Opened)"
        if isinstance(column, str):
            example = f'last({{Opened: "{column}"}})'
        raise ValueError(f'column "{name}" is {shown(column)}, which is no fold over events: write {example}')


def _check_events(word: str, events: object) -> None:
    if isinstance(events, type):
        raise ValueError(f"{word} is one class: write {word}=({events.__name__},)")
    if isinstance(events, ByKey):
        raise ValueError(f"{word} is one event: write {word}=({events},)")
    if not isinstance(events, tuple | list):
        raise ValueError(f"{word}={shown(events)} is no tuple of classes of events: write {word}=(Closed,)")
    for number, event in enumerate(events):
        if isinstance(event, Mistaken):
            raise ValueError(f"{word}: {event.problem}")
        if not isinstance(event, ByKey) and not is_event(event):
            raise ValueError(
                f"{word} has {shown(event)}, which is no class of events with a type: write {word}=(Closed,)"
            )
        if event in events[:number]:
            raise ValueError(f"{word} has {getattr(event, '__name__', event)} twice: remove one")


def _check_where(where: object) -> None:
    example = 'where={Opened: equals("city", value("Galt"))}'
    conditions = where.values() if isinstance(where, Mapping) else [where]
    for event in where if isinstance(where, Mapping) else ():
        if isinstance(event, Mistaken):
            raise ValueError(f"where: {event.problem}")
        if not isinstance(event, ByKey) and not is_event(event):
            raise ValueError(f"where has a condition for {shown(event)}, which is no class of events: write {example}")
    for condition in conditions:
        if isinstance(condition, Mistaken):
            raise ValueError(f"where: {condition.problem}")
        if isinstance(condition, str) and condition:
            raise ValueError(f'where has the text "{condition}": write field("{condition}"), or {example}')
        if isinstance(condition, type) or not hasattr(condition, "python"):
            raise ValueError(f"where has {shown(condition)}, which is no condition: write {example}")


def _check_each(each: object) -> None:
    example = 'each={Placed: "lines"}'
    if not isinstance(each, Mapping):
        raise ValueError(f"each={shown(each)} does not say of which event: write {example}")
    for event, name in each.items():
        if not is_event(event):
            raise ValueError(f"each has {shown(event)}, which is no class of events: write {example}")
        must_be_text(f"each of {event.__name__}", name, example)


def is_event(event: object) -> bool:
    """Whether it is a class of events with a type; of rows, a later check says what to write."""
    if not isinstance(event, type):
        return False
    return is_row_class(event) or (issubclass(event, Event) and hasattr(event, "type"))
