"""Adds the columns that views look up in each other; each view is read once for all rows of an answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from headwater.api.guard.caller import Caller
from headwater.api.guard.own_streams import OwnStreams
from headwater.api.guard.scopes import STREAMS
from headwater.api.personal import PersonalValues
from headwater.api.ports import Generations, Row, ViewReader
from headwater.api.reading import KeyReaders, read_live
from headwater.api.waiting.awaited import After
from headwater.api.waiting.waiter import Waiter
from headwater.projections.table.json_text import JsonForms, with_json
from headwater.projections.table.lookups import Lookup, looked_up_forms
from headwater.projections.view import View

ROWS_AT_ONCE: Final = 1_000


class Lookups:
    """Reads the looked-up columns, from stores with look-ups by key; readers: by store."""

    def __init__(
        self,
        views: Mapping[str, View],
        readers: Mapping[str, ViewReader],
        generations: Generations,
        waiter: Waiter,
        own_streams: OwnStreams,
        personal: PersonalValues,
    ) -> None:
        """own_streams: says whose events the view of all events shows to whom. personal: opens sealed values."""
        self._views, self._generations, self._waiter = views, generations, waiter
        self._own_streams, self._personal = own_streams, personal
        names = {lookup.view for view in views.values() for lookup in view.lookups}
        self._readers = {name: KeyReaders(readers, views[name]) for name in names}

    def readable(self, view: View, caller: Caller) -> tuple[Hashable, ...]:
        """What decides which rows that `view` looks up exist for a caller: callers with the same see the same."""
        names = dict.fromkeys(lookup.view for lookup in view.lookups)
        conditions = (each for name in names for each in caller.readable(self._views[name]))
        opened = (self.opens(view, caller),) if self._sealed_columns(view) else ()
        return (*conditions, *(self._own_streams.seen_by(caller) if STREAMS in names else ()), *opened)

    def opens(self, view: View, caller: Caller) -> bool:
        """Whether `show` opens personal values of this view for a caller."""
        return caller.reads_personal and bool(self._sealed_columns(view))

    async def show(
        self,
        view: View,
        rows: Sequence[Row],
        fields: Sequence[str],
        caller: Caller | None,
        after: After | None = None,
    ) -> list[Row]:
        """Stored `rows` of `view` with the columns `fields`, as answers have them: with JSON in place of JSON texts.

        A looked-up column is null if there is no such row.

        caller: for whom; without one, no row exists of views whose rows are for some readers.
        after: positions that the looked-up views must have applied too.

        Raises the errors of reading these views.
        """
        for name, columns in _by_view(view, fields).items():
            rows = await self._join(rows, self._views[name], columns, caller, after)
        shown = [{name: row[name] for name in fields if name in row} for row in rows]
        opened = shown
        if sealed := self._sealed_columns(view):
            opened = await self._personal.of_rows(shown, [name for name in fields if name in sealed], caller)
        forms = {name: form for name, form in self._json_forms(view).items() if name in fields}
        return with_json(opened, forms, stored=None if opened is shown else shown) if forms else opened

    def _json_forms(self, view: View) -> JsonForms:
        """Of the columns of a view, also looked-up ones."""
        return {**view.json_forms, **looked_up_forms(view, self._views)}

    def _sealed_columns(self, view: View) -> frozenset[str]:
        """The columns of a view that have personal values, also looked-up ones."""
        if not self._personal.any:
            return frozenset()
        looked_up = (
            name
            for name, lookup in view.looked_up.items()
            if (other := self._views.get(lookup.view)) is not None and lookup.columns[name] in other.personal
        )
        return view.personal | frozenset(looked_up)

    async def _join(
        self,
        rows: Sequence[Row],
        view: View,
        columns: Mapping[str, Lookup],
        caller: Caller | None,
        after: After | None,
    ) -> Sequence[Row]:
        """`rows` with the looked-up columns of `view` in `columns`."""
        keys = [row[lookup.on] for lookup in columns.values() for row in rows if row[lookup.on] is not None]
        there = [lookup.columns[name] for name, lookup in columns.items()]
        found = await self._read(view, _distinct(keys), _distinct(there), caller, after)

        def looked_up(row: Row) -> Row:
            return {name: found.get(row[each.on], {}).get(each.columns[name]) for name, each in columns.items()}

        return [row | looked_up(row) for row in rows]

    async def _read(
        self, view: View, keys: Sequence[str], columns: Sequence[str], caller: Caller | None, after: After | None
    ) -> Mapping[str, Row]:
        async def ask(reader: ViewReader) -> Mapping[str, Row]:
            await self._waiter.wait(view, reader, after)
            rows, _ = await read_live(
                self._generations, view, lambda live: reader.get_many(live, chunk, columns), caller
            )
            return rows

        if view.name == STREAMS:  # whoever chooses the value of a column may name any event in it
            keys = [key for key in keys if self._own_streams.exists_for(caller, key.rpartition("/")[0])]
        found: dict[str, Row] = {}
        for start in range(0, len(keys), ROWS_AT_ONCE):
            chunk = keys[start : start + ROWS_AT_ONCE]
            found |= await self._readers[view.name].ask(ask)
        return found


def _by_view(view: View, fields: Sequence[str]) -> dict[str, dict[str, Lookup]]:
    """The looked-up columns of `fields`, by the view that they are looked up in."""
    by_view: dict[str, dict[str, Lookup]] = {}
    for name in fields:
        if name in view.looked_up:
            by_view.setdefault(view.looked_up[name].view, {})[name] = view.looked_up[name]
    return by_view


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
