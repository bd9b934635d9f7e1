"""Waits for positions in the write-ahead log of captured databases, for `after=shop@0/1A2B3C8`.

A transaction that was committed before the position is in the log once the end of one at or after it is there
(`eventlog.capturing.capture_progress`). Its records may not be visible yet, because the end of a transaction of Kafka
reaches each partition on its own. So the high watermarks of the tables' topics are read after that, and everything
before them is awaited: the last change of each row that the view may lack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from api.errors import BadParameter, SourceNotCaughtUp
from api.ports import Applied, CapturedSources, Generations, Live, ViewReader
from api.reading import read_live
from api.waiting.awaited import After, Awaited, first_unapplied
from eventlog.capturing.control_topics import Snapshot
from eventlog.capturing.declaring import Captured
from eventlog.capturing.postgres.positions import lsn_text, read_lsn
from eventlog.envelope import Position
from eventlog.errors import LogUnavailable
from eventlog.source_positions import SourcePosition, topic_and_partition
from projections.stores.names import patch_partition
from projections.view import View

MARK: Final = "@"
"""Between the name of a source and a position in its database's log."""
MAX_OFFSETS: Final = 2_000
"""Of one partition that are read to find the rows; with more, all ledgers must cover the last one."""
MAX_ROWS: Final = 50
"""Rows that are awaited one by one; with more, ledgers must cover the last one in each partition of `patches`."""


class DatabasePosition(NamedTuple):
    """A position in the write-ahead log of a source's database, in bytes."""

    source: str
    lsn: int

    def __str__(self) -> str:
        return f"{self.source}{MARK}{lsn_text(self.lsn)}"


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """Offsets of a source that a view may lack: from the first to the one before `end`."""

    first: int
    end: int


class CapturedWaiter:
    """Finds what a view must have applied; patch_partitions: of `patches`."""

    def __init__(self, sources: CapturedSources, generations: Generations, patch_partitions: int) -> None:
        self._sources, self._generations, self._patch_partitions = sources, generations, patch_partitions

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

    async def awaited(
        self, view: View, reader: ViewReader, positions: Sequence[DatabasePosition], after: After
    ) -> list[Awaited]:
        """The places of everything that was committed up to these positions, as far as the view may lack it.

        It returns once the log has them. A position in a source that the view does not read has none. Raises
        SourceNotCaughtUp, LogUnavailable, StoreUnavailable or GenerationMissing.
        """
        ends: dict[str, int] = {}
        highest = {each.source: each for each in sorted(positions)}
        for position in highest.values():
            topics = [topic for topic, table in _captured(view).items() if table.source_name == position.source]
            if topics:
                await self._captured(position, after)
                ends |= await self._sources.stored_ends(topics)
        if not any(ends.values()):
            return []
        ledger, live = await read_live(self._generations, view, reader.ledger)
        unapplied = {
            source: _Unapplied(first, end)
            for source, end in ends.items()
            if (first := first_unapplied(live, ledger, source, self._patch_partitions)) < end
        }
        committed = await self._committed(unapplied, after)
        found: list[Awaited] = []
        for source, part in unapplied.items():
            if source in committed and part.end - part.first <= MAX_OFFSETS:
                found += await self._rows(view, live, ledger, source, part)
            else:
                found.append(Awaited(_place(source, part.end - 1), None, includes_earlier=True))
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

    async def _committed(self, unapplied: Mapping[str, _Unapplied], after: After) -> set[str]:
        """The sources in which all these offsets can be read; those missing when the time is up still have an open
        transaction of Kafka."""
        open_, polls = set(unapplied), count()
        while open_:
            ends = await self._sources.committed_ends(sorted(open_))
            open_ = {source for source in open_ if ends[source] < unapplied[source].end}
            if open_ and not await after.pause(next(polls)):
                break
        return set(unapplied) - open_

    async def _rows(
        self, view: View, live: Live, ledger: Mapping[int, Applied], source: str, part: _Unapplied
    ) -> list[Awaited]:
        """The last change of each row in these offsets that the view may lack."""
        topic, _ = topic_and_partition(source)
        table = _captured(view)[topic]
        rows = await self._sources.changed_rows(table, source, part.first, part.end)
        found: list[Awaited] = []
        last: dict[int, Awaited] = {}
        for row, offset in sorted(rows.items(), key=lambda row: row[1]):
            key = view.layout.patched_key(topic, row)
            partition = patch_partition(view, live.tag, key, self._patch_partitions)
            awaited = Awaited(_place(source, offset), key)
            if not awaited.applied(ledger.get(partition, {})):
                found.append(awaited)
                last[partition] = Awaited(awaited.place, key, includes_earlier=True)
        return found if len(found) <= MAX_ROWS else list(last.values())


def _captured(view: View) -> dict[str, type[Captured]]:
    """The captured tables that it reads, by topic."""
    return {topic: table for topic, table in view.tables.items() if issubclass(table, Captured)}


def _place(source: str, offset: int) -> SourcePosition:
    topic, partition = topic_and_partition(source)
    return SourcePosition(topic, Position(partition, offset))
