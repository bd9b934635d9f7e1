"""Waits for captured databases, for `after=shop@0/1A2B3C8`, and for changes in topics of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from headwater.api.errors import BadParameter, SourceNotCaughtUp, UnknownSource
from headwater.api.limits import Shared, Threads
from headwater.api.reading import Applied, Live, read_live
from headwater.api.waiting.awaited import After, Awaited, Reading, first_unapplied, place_before, row_key
from headwater.eventlog.capturing.capture_progress import Commit, Progress
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.positions import lsn_text, read_lsn
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import EventLog
from headwater.eventlog.source_positions import source_ends, source_id, topic_and_partition
from headwater.projections.stores.names import patch_partition
from headwater.projections.table.rows import RowClass
from headwater.projections.view import View

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


class CapturedWaiter:
    """Waits until positions are captured."""

    def __init__(self, sources: CapturedReader) -> None:
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
        names: list[str] = []
        highest = {position.source: position for position in sorted(positions)}
        for position in highest.values():
            topics = [topic for topic, table in _captured(view).items() if table.source_name == position.source]
            if topics:
                await self._captured(position, after)
                names += topics
        return names

    async def _captured(self, position: DatabasePosition, after: After) -> None:
        """Return once everything that was committed up to the position is in the log; raises SourceNotCaughtUp."""
        for poll in count():
            commit = await self._sources.last_commit(position.source)
            if commit is not None and commit.lsn >= position.lsn:
                return
            if not await after.pause(poll):
                reached = None if commit is None else str(commit)
                snapshot = None
                with suppress(LogUnavailable):  # it only makes the answer more helpful
                    snapshot = await self._sources.snapshot(position.source)
                running = snapshot if snapshot is not None and snapshot.is_running else None
                raise SourceNotCaughtUp(position.source, str(position), reached, after.wait_ms, running)


def _captured(view: View) -> dict[str, type[Captured]]:
    """The captured tables that it reads, by topic."""
    return {topic: table for topic, table in view.tables.items() if issubclass(table, Captured)}


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """Offsets of a source that a view may lack: from the first to the one before `end`."""

    first: int
    end: int


class ChangedRows:
    """What a view must have applied of topics of rows; patch_partitions: of `patches`."""

    def __init__(self, sources: CapturedReader, patch_partitions: int) -> None:
        self._sources, self._patch_partitions = sources, patch_partitions

    async def lacked(self, view: View, reading: Reading, topics: Sequence[str], after: After) -> list[Awaited]:
        """The last change of each row that is in these topics now, committed or not, as far as the view may lack it.

        Raises LogUnavailable, StoreUnavailable or GenerationMissing.
        """
        ends = await self._sources.stored_ends(topics) if topics else {}
        if not any(ends.values()):
            return []
        ledger, live = await read_live(reading.generations, view, reading.reader.ledger)
        unapplied = {
            source: _Unapplied(first, end)
            for source, end in ends.items()
            if (first := first_unapplied(live, ledger, source, self._patch_partitions)) < end
        }
        committed = await self._committed(unapplied, after)
        awaited: list[Awaited] = []
        for source, part in unapplied.items():
            if source in committed and part.end - part.first <= MAX_OFFSETS:
                awaited += await self._rows(view, live, ledger, source, part)
            else:
                awaited.append(Awaited(place_before(source, part.end), None, includes_earlier=True))
        return awaited

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
        topic, _ = topic_and_partition(source)
        rows = await self._sources.changed_rows(view.tables[topic], source, part.first, part.end)
        pending: list[Awaited] = []
        last: dict[int, Awaited] = {}
        for row, offset in sorted(rows.items(), key=lambda row: row[1]):
            key = view.layout.patched_key(topic, row)
            partition = patch_partition(view, live.tag, key, self._patch_partitions)
            awaited = Awaited(place_before(source, offset + 1), key)
            if not awaited.applied(ledger.get(partition, {})):
                pending.append(awaited)
                last[partition] = Awaited(awaited.place, key, includes_earlier=True)
        return pending if len(pending) <= MAX_ROWS else list(last.values())


class CapturedReader:
    """Reads how far sources are captured; snapshot_of: returns the last snapshot that a source's connector reported.

    Requests that ask for the same source at the same time share one answer.
    """

    def __init__(
        self,
        log: EventLog,
        sources: Mapping[str, Source],
        snapshot_of: Callable[[Source], Snapshot | None] = lambda _: None,
        threads: int = 4,
    ) -> None:
        self.sources = sources
        self._log, self._snapshot_of = log, snapshot_of
        self._threads = Threads(threads, "captured-reader")
        progress = {name: Progress(log, source) for name, source in sources.items()}
        self._commits = {
            name: Shared(partial(self._threads.run, reader.last_commit), 0.0) for name, reader in progress.items()
        }

    def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._threads.close()

    def source(self, name: str) -> Source:
        """The source with this name; raises UnknownSource."""
        if name not in self.sources:
            raise UnknownSource(name, tuple(self.sources))
        return self.sources[name]

    async def last_commit(self, name: str) -> Commit | None:
        """The last transaction whose changes, and those of all before it, are in the log; raises LogUnavailable."""
        return await self._commits[self.source(name).name].current()

    async def stored_ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last record of each source in these topics, committed or not; raises LogUnavailable."""
        return await self._threads.run(
            lambda: {
                source_id(topic, partition): end
                for topic in topics
                for partition, end in self._log.stored_ends(topic).items()
            }
        )

    async def committed_ends(self, sources: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last committed record of each of these sources; raises LogUnavailable."""
        return await self._threads.run(source_ends, self._log, sources)

    async def changed_rows(self, table: RowClass, source: str, start: int, end: int) -> Mapping[str, int]:
        """The last offset of each row that was changed from `start` to `end`, by the row's key.

        Raises LogUnavailable.
        """

        def read() -> Mapping[str, int]:
            records = self._log.read(*topic_and_partition(source), start, end)
            return {key: record.offset for record in records if (key := row_key(table, record)) is not None}

        return await self._threads.run(read)

    async def snapshot(self, name: str) -> Snapshot | None:
        """The last snapshot that the source's connector reported; raises LogUnavailable."""
        return await self._threads.run(lambda: self._snapshot_of(self.source(name)))
