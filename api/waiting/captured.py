"""Waits for positions in the write-ahead log of captured databases, for `after=shop@0/1A2B3C8`.

A transaction that was committed before the position is in the log once the end of one at or after it is there
(`eventlog.capturing.capture_progress`). Its records may not be visible yet, because the end of a transaction of Kafka
reaches each partition on its own. So the high watermarks of the tables' topics are read after that, and everything
before them is awaited: see `api/waiting/changed_rows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from headwater.api.errors import BadParameter, SourceNotCaughtUp
from headwater.api.ports import CapturedSources
from headwater.api.waiting.awaited import After
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.positions import lsn_text, read_lsn
from headwater.eventlog.errors import LogUnavailable
from headwater.projections.view import View

MARK: Final = "@"
"""Between the name of a source and a position in its database's log."""


class DatabasePosition(NamedTuple):
    """A position in the write-ahead log of a source's database, in bytes."""

    source: str
    lsn: int

    def __str__(self) -> str:
        return f"{self.source}{MARK}{lsn_text(self.lsn)}"


class CapturedWaiter:
    """Waits until positions are captured."""

    def __init__(self, sources: CapturedSources) -> None:
        self._sources = sources

    def read(self, text: str) -> DatabasePosition:
        """Read `shop@0/1A2B3C8`; raises BadParameter."""
        name, _, lsn = text.partition(MARK)
        known = tuple(self._sources.sources)
        if name not in known:
            has = "is not a source here" if known else "is not a source: this deployment captures no database"
            raise BadParameter("after", f'is invalid: "{name[:64]}" {has}', known)
        engine = self._sources.sources[name].engine
        if engine != "postgresql":
            raise BadParameter("after", f'is invalid: positions of "{name}" cannot be awaited, because it is {engine}')
        try:
            return DatabasePosition(name, read_lsn(lsn))
        except ValueError as error:
            raise BadParameter("after", f"is invalid: {error}") from error

    async def captured(self, view: View, positions: Sequence[DatabasePosition], after: After) -> list[str]:
        """The topics that have everything that was committed up to these positions, as far as the view reads it.

        It returns once the log has that. A position in a source that the view does not read has no topic. Raises
        SourceNotCaughtUp or LogUnavailable.
        """
        found: list[str] = []
        highest = {each.source: each for each in sorted(positions)}
        for position in highest.values():
            topics = [topic for topic, table in _captured(view).items() if table.source_name == position.source]
            if topics:
                await self._captured(position, after)
                found += topics
        return found

    async def _captured(self, position: DatabasePosition, after: After) -> None:
        """Return once everything that was committed up to the position is in the log; raises SourceNotCaughtUp."""
        for poll in count():
            commit = await self._sources.last_commit(position.source)
            if commit is not None and commit.lsn >= position.lsn:
                return
            if not await after.pause(poll):
                reached = None if commit is None else str(commit)
                snapshot = await self._running_snapshot(position.source)
                raise SourceNotCaughtUp(position.source, str(position), reached, after.wait_ms, snapshot)

    async def _running_snapshot(self, source: str) -> Snapshot | None:
        found = None
        with suppress(LogUnavailable):  # it only makes the answer more helpful
            found = await self._sources.snapshot(source)
        return found if found is not None and found.is_running else None


def _captured(view: View) -> dict[str, type[Captured]]:
    """The captured tables that it reads, by topic."""
    return {topic: table for topic, table in view.tables.items() if issubclass(table, Captured)}
