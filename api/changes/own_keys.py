"""The keys of the rows that exist for a follower, in any store of their view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from headwater.api.changes.own_rows import MAX_OWN_ROWS
from headwater.api.errors import BadParameter
from headwater.api.ports import Finder, Generations, Live, ViewReader
from headwater.api.reading import read_live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import MAX_ROWS, Order, Query
from headwater.projections.view import View

NEEDS_KEYS: Final = "follow the rows that you name with key="


class OwnKeys:
    """Reads them for one follower; conditions: what its rows fulfil. readers: by store."""

    def __init__(
        self, readers: Mapping[str, ViewReader], generations: Generations, view: View, conditions: tuple[Filter, ...]
    ) -> None:
        self._generations, self._view, self._conditions = generations, view, conditions
        stores = [store for store in view.stores if store.answers]
        self._stores = [readers[store.name] for store in stores]
        self._finders = [cast(Finder, readers[store.name]) for store in stores if store.finds]

    def check(self, keys: frozenset[str] | None) -> None:
        """Raise BadParameter if the stores cannot find the follower's rows, and it names none."""
        if keys is None and not self._finders:
            problem = f'is missing: "{self._view.name}" has look-ups by key only, and some rows are not yours'
            raise BadParameter("key", f"{problem}: {NEEDS_KEYS}")

    async def read(self, keys: frozenset[str] | None) -> set[str]:
        """The keys, or those of `keys`; raises BadParameter if they are too many to be remembered."""
        found = set[str]()
        if keys is not None:
            for reader in self._stores:
                found.update(await self._named(reader, list(keys)))
            return found
        for finder in self._finders:
            found.update(await self._every(finder))
        return found

    async def _named(self, reader: ViewReader, keys: Sequence[str]) -> Sequence[str]:
        async def ask(live: Live) -> Sequence[str]:
            return list(await reader.get_many(live.readable_by(self._conditions), keys, (self._view.key_name,)))

        return (await read_live(self._generations, self._view, ask))[0]

    async def _every(self, finder: Finder) -> Sequence[str]:
        name = self._view.key_name
        query = Query(self._conditions, (Order(name),), MAX_ROWS, fields=(name,))

        async def ask(live: Live) -> Sequence[str]:
            found, beyond = list[str](), None
            while True:
                page = await finder.find(live.readable_by(self._conditions), replace(query, beyond=beyond))
                found += [row[name] for row in page.rows]
                if len(found) > MAX_OWN_ROWS:
                    raise BadParameter("key", f"is missing: more than {MAX_OWN_ROWS} rows are yours: {NEEDS_KEYS}")
                if page.last is None:
                    return found
                beyond = tuple(page.last)

        return (await read_live(self._generations, self._view, ask))[0]
