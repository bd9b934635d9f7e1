"""Which generation of each view is live, from the registry's tables."""

from __future__ import annotations

import asyncio
import time

from psycopg import sql

from api.ports import GenerationGone, Live
from api.reads.database import Database
from projections.errors import GenerationMissing
from projections.view import TableView

CACHED_S = 0.25

LIVE = sql.SQL("""
    SELECT live.view, live.generation, generations.tag, generations.base, generations.source
    FROM {live_views} AS live
    JOIN {generations} AS generations ON generations.view = live.view AND generations.generation = live.generation
""")


class LiveGenerations:
    """The live generation of every view, asked for at most four times a second.

    An answer may be 250 ms old. That is harmless: a generation stays for a while after another took its place.
    """

    def __init__(self, database: Database, environment: str) -> None:
        self._database = database
        self._statement = LIVE.format(
            live_views=sql.Identifier(environment, "live_views"),
            generations=sql.Identifier(environment, "generations"),
        )
        self._known: dict[str, tuple[int, str, dict[int, int]]] = {}
        self._sources: dict[str, str | None] = {}
        self._asked = float("-inf")
        self._asking = asyncio.Lock()

    async def live(self, view: TableView, fresh: bool = False) -> Live:
        """The live generation; see `Generations`."""
        await self._know(view.name, fresh)
        found = self._known.get(view.name)
        if found is None:
            raise GenerationMissing(view.name)
        return Live(view, *found)

    async def made_from(self, name: str) -> str | None:
        """See `Generations`."""
        await self._know(name, fresh=False)
        return self._sources.get(name)

    async def _know(self, name: str, fresh: bool) -> None:
        called = time.monotonic()
        # a view that was not there a moment ago may be now
        if fresh or called - self._asked > CACHED_S or name not in self._known:
            fresh = fresh or name not in self._known
            async with self._asking:
                if self._asked < (called if fresh else called - CACHED_S):
                    await self._ask()

    async def _ask(self) -> None:
        asked = time.monotonic()
        try:
            rows = await self._database.rows(self._statement)
        except GenerationGone:  # no table yet: the read side has never run here
            rows = []
        self._known = {
            view: (generation, tag, {int(source): end for source, end in (base or {}).items()})
            for view, generation, tag, base, _ in rows
        }
        self._sources = {view: source for view, *_, source in rows}
        self._asked = asked
