"""The live generation of each view, from the registry's tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from psycopg import sql

from headwater.api.limits import Shared
from headwater.api.reading import GenerationGone, Live, Made
from headwater.api.reads.postgres import Database
from headwater.projections.errors import GenerationMissing
from headwater.projections.view import View

CACHED_S = 0.25
FAILED_S = 1.0
"""How long nobody looks again: requests that were admitted one after the other would wait for one look each."""

LIVE = sql.SQL("""
    SELECT view, version, generation, tag, base, source, selection, live_at FROM {generations}
    WHERE state = 'live' ORDER BY view, version
""")
PAUSED = sql.SQL("SELECT view, since FROM {paused}")


class LiveGenerations:
    """The live generation of every view, read at most four times per second, for all requests together.

    An answer may be 250 ms old. That is harmless, because a replaced generation stays for a while.
    """

    def __init__(self, database: Database, environment: str) -> None:
        self._database = database
        self._statement = LIVE.format(generations=sql.Identifier(environment, "generations"))
        self._paused_statement = PAUSED.format(paused=sql.Identifier(environment, "_paused_views"))
        self._known = Shared(self._read, CACHED_S, failed_for_s=FAILED_S)
        self._paused = Shared(self._read_paused, CACHED_S, failed_for_s=FAILED_S)

    async def live(self, view: View, fresh: bool = False) -> Live:
        """The live generation; see `Generations`."""
        known = await self._known.current(fresh=fresh)
        if view.name not in known.live and not fresh:  # one that did not exist a moment ago may exist now
            known = await self._known.current(fresh=True)
        # code reads the generation of its version; before that one is built, the previous version's
        generations = known.live.get(view.name, {})
        usable = [version for version in generations if version <= view.version]
        if not usable:
            raise GenerationMissing(view.name)
        return Live(view, *generations[max(usable)])

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        """See `Generations`."""
        return (await self._known.current(fresh=fresh)).made

    async def paused_since(self, view: View) -> datetime | None:
        """See `Generations`. Only requests that wait for a view ask."""
        return (await self._paused.current()).get(view.name)

    async def _read_paused(self) -> Mapping[str, datetime]:
        try:
            return dict(await self._database.rows(self._paused_statement))
        except GenerationGone:  # no table yet: the read side has never run here
            return {}

    async def _read(self) -> _Known:
        try:
            rows = await self._database.rows(self._statement)
        except GenerationGone:  # no table yet: the read side has never run here
            rows = []
        known = _Known({}, {})
        for view, version, generation, tag, base, source, selection, at in rows:
            covered = dict(base or {})
            known.live.setdefault(view, {})[version] = (generation, tag, covered)
            if source is not None:
                known.made[view] = Made(view, source, version, selection or "", covered, at)
        return known


class _Known(NamedTuple):
    """What the registry has. live: by view and version."""

    live: dict[str, dict[int, tuple[int, str, dict[str, int]]]]
    made: dict[str, Made]
