"""Rows as they are shown: with the columns that views look up in each other, read once for all rows of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from api.ports import Generations, Row, ViewReader
from api.reading import KeyReaders, read_live
from api.waiting import After, Waiter
from projections.lookups import Lookup
from projections.view import TableView

ROWS_AT_ONCE: Final = 1_000


class Lookups:
    """Reads what views look up in others, from the stores that answer for these by key; readers: by store."""

    def __init__(
        self,
        views: Mapping[str, TableView],
        readers: Mapping[str, ViewReader],
        generations: Generations,
        waiter: Waiter,
    ) -> None:
        self._views, self._generations, self._waiter = views, generations, waiter
        names = {lookup.view for view in views.values() for lookup in view.lookups}
        self._readers = {name: KeyReaders(readers, views[name]) for name in names}

    async def show(
        self, view: TableView, rows: Sequence[Row], fields: Sequence[str], after: After | None = None
    ) -> list[Row]:
        """Stored `rows` of `view` with the columns `fields`; one that is looked up is null where there is no such row.

        after: what the views that are looked up must have applied too. Raises what reading these views does.
        """
        wanted = {name: view.looked_up[name] for name in fields if name in view.looked_up}
        if wanted:
            rows = await self._joined(rows, wanted, after)
        return [{name: row[name] for name in fields if name in row} for row in rows]

    async def _joined(self, rows: Sequence[Row], wanted: Mapping[str, Lookup], after: After | None) -> Sequence[Row]:
        found = {name: await self._read(self._views[name], keys, after) for name, keys in _keys(wanted, rows).items()}

        def column(row: Row, name: str, lookup: Lookup) -> object:
            other = found[lookup.view].get(row[lookup.on])
            return None if other is None else other[lookup.columns[name]]

        return [row | {name: column(row, name, lookup) for name, lookup in wanted.items()} for row in rows]

    async def _read(self, view: TableView, keys: Sequence[str], after: After | None) -> Mapping[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(keys), ROWS_AT_ONCE):
            found |= await self._read_some(view, keys[start : start + ROWS_AT_ONCE], after)
        return found

    async def _read_some(self, view: TableView, keys: Sequence[str], after: After | None) -> Mapping[str, Row]:
        async def ask(reader: ViewReader) -> Mapping[str, Row]:
            await self._waiter.wait(view, reader, after)
            rows, _ = await read_live(self._generations, view, lambda live: reader.get_many(live, keys))
            return rows

        return await self._readers[view.name].ask(ask)


def _keys(wanted: Mapping[str, Lookup], rows: Sequence[Row]) -> dict[str, list[str]]:
    """The keys to read of each view that is looked up, each once."""
    keys: dict[str, dict[str, None]] = {}
    for lookup in wanted.values():
        keys.setdefault(lookup.view, {}).update((row[lookup.on], None) for row in rows if row[lookup.on] is not None)
    return {view: list(some) for view, some in keys.items()}
