"""Checks of the columns that stores are told of; each raises ValueError that says what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eventlog.declaring import meant, must_be_texts, shown
from projections.table.declared_stores import Elasticsearch, Postgres, Store
from projections.table.types import ColumnType

TEXTS: Final = (ColumnType.TEXT, ColumnType.JSON)
"""What full-text search can read."""
PLACES: Final = (ColumnType.POINT,)
"""What has no order, and is never equal."""


def check_store_columns(store: Store, types: Mapping[str, ColumnType]) -> None:
    """Check the columns that a store is told of, in a view with these."""
    if isinstance(store, Postgres):
        _check_indexes(store.indexes, types)
    if isinstance(store, Elasticsearch):
        _check_columns("Elasticsearch(text=…)", store.text, 'Elasticsearch(text=("description",))', types)
        _check_columns("Elasticsearch(facets=…)", store.facets, 'Elasticsearch(facets=("city",))', types)
        for name in store.text:
            if types[name] not in TEXTS:
                problem = f'names "{name}", which is {types[name].name} and no text'
                raise ValueError(f"Elasticsearch(text=…) {problem}: use {_names(types, TEXTS)}")
        _refuse("Elasticsearch(facets=…)", store.facets, types, "has no values to count")


def _check_indexes(indexes: object, types: Mapping[str, ColumnType]) -> None:
    example = 'Postgres(indexes=(("city", "-price"),))'
    if not isinstance(indexes, tuple | list):
        raise ValueError(f"Postgres(indexes={shown(indexes)}) is no tuple of indexes: write {example}")
    for index in indexes:
        if isinstance(index, str):
            columns = ", ".join(f'("{each}",)' for each in indexes if isinstance(each, str))
            raise ValueError(
                f'Postgres(indexes=…) has the text "{index}" for an index, which is a tuple of columns: write '
                f"Postgres(indexes=({columns},))"
            )
        must_be_texts("an index in Postgres(indexes=…)", index, example)
        names = [each.removeprefix("-") for each in index]
        if not names:
            raise ValueError(f"an index in Postgres(indexes=…) has no column: write {example}")
        _check_columns("Postgres(indexes=…)", names, example, types)
        _refuse("Postgres(indexes=…)", names, types, "has no order")


def _check_columns(what: str, names: object, example: str, types: Mapping[str, ColumnType]) -> None:
    must_be_texts(what, names, example)
    assert isinstance(names, tuple | list)  # noqa: S101 - for mypy
    for name in names:
        if name not in types:
            raise ValueError(f"{what} names the unknown column {meant(name, types)}")
        if types[name] is ColumnType.LIST:
            raise ValueError(f'{what} cannot index "{name}": it is a list')


def _refuse(what: str, names: Sequence[str], types: Mapping[str, ColumnType], why: str) -> None:
    for name in names:
        if types[name] in PLACES:
            raise ValueError(f'{what} names "{name}", which is {types[name].name} and {why}: remove it')


def _names(types: Mapping[str, ColumnType], kinds: Sequence[ColumnType]) -> str:
    return ", ".join(name for name, kind in types.items() if kind in kinds)
