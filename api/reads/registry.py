"""The live generation of each view, from the registry's tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime

from psycopg import sql

from headwater.api.reading import GenerationGone, Live, Made
from headwater.api.reads.postgres import Database
from headwater.projections.errors import GenerationMissing
from headwater.projections.view import View

CACHED_S = 0.25

LIVE = sql.SQL("""
    SELECT view, version, generation, tag, base, source, selection, live_at FROM {generations}
    WHERE state = 'live' ORDER BY view, version
""")
PAUSED = sql.SQL("SELECT view, since FROM {paused}")


class LiveGenerations:
    """The live generation of every view, read at most four times per second.

    An answer may be 250 ms old. That is harmless, because a replaced generation stays for a while.
    """

    def __init__(self, database: Database, environment: str) -> None:
        self._database = database
        self._statement = LIVE.format(generations=sql.Identifier(environment, "generations"))
        self._paused_statement = PAUSED.format(paused=sql.Identifier(environment, "_paused_views"))
        self._paused: dict[str, datetime] = {}
        self._known: dict[str, dict[int, tuple[int, str, dict[str, int]]]] = {}
        """By view and version."""
        self._made: dict[str, Made] = {}
        self._read_at = self._paused_at = float("-inf")
        self._reading = asyncio.Lock()

    async def live(self, view: View, fresh: bool = False) -> Live:
        """The live generation; see `Generations`."""
        await self._know(view.name, fresh)
        # code reads the generation of its version; before that one is built, the previous version's
        found = self._known.get(view.name, {})
        usable = [version for version in found if version <= view.version]
        if not usable:
            raise GenerationMissing(view.name)
        return Live(view, *found[max(usable)])

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        """See `Generations`."""
        await self._know(None, fresh)
        return self._made

    async def paused_since(self, view: View) -> datetime | None:
        """See `Generations`. Only requests that wait for a view ask."""
        if time.monotonic() - self._paused_at > CACHED_S:
            async with self._reading:
                if time.monotonic() - self._paused_at > CACHED_S:
                    await self._read_paused()
        return self._paused.get(view.name)

    async def _read_paused(self) -> None:
        read_at = time.monotonic()
        try:
            self._paused = dict(await self._database.rows(self._paused_statement))
        except GenerationGone:  # no table yet: the read side has never run here
            self._paused = {}
        self._paused_at = read_at

    async def _know(self, name: str | None, fresh: bool) -> None:
        called = time.monotonic()
        # a view that did not exist a moment ago may exist now
        fresh = fresh or (name is not None and name not in self._known)
        if fresh or called - self._read_at > CACHED_S:
            async with self._reading:
                if self._read_at < (called if fresh else called - CACHED_S):
                    await self._read()

    async def _read(self) -> None:
        read_at = time.monotonic()
        try:
            rows = await self._database.rows(self._statement)
        except GenerationGone:  # no table yet: the read side has never run here
            rows = []
        self._known, self._made = {}, {}
        for view, version, generation, tag, base, source, selection, at in rows:
            covered = dict(base or {})
            self._known.setdefault(view, {})[version] = (generation, tag, covered)
            if source is not None:
                self._made[view] = Made(view, source, version, selection or "", covered, at)
        self._read_at = read_at
