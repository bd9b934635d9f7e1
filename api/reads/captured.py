"""Captured databases, as far as the log has them, read in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from headwater.api.errors import UnknownSource
from headwater.api.limits.work import Threads
from headwater.api.waiting.awaited import row_key
from headwater.eventlog.capturing.capture_progress import Commit, Progress
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.ports import EventLog
from headwater.eventlog.source_positions import source_ends, source_id, topic_and_partition
from headwater.projections.table.rows import RowClass


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
        self._progress = {name: Progress(log, source) for name, source in sources.items()}
        self._looking: dict[str, asyncio.Task[Commit | None]] = {}
        self._threads = Threads(threads, "captured-reader")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._threads.close()

    def source(self, name: str) -> Source:
        """The source with this name; raises UnknownSource."""
        if name not in self.sources:
            raise UnknownSource(name, tuple(self.sources))
        return self.sources[name]

    async def last_commit(self, name: str) -> Commit | None:
        """The last transaction whose changes, and those of all before it, are in the log; raises LogUnavailable."""
        looking = self._looking.get(name)
        if looking is None:
            looking = asyncio.create_task(self._threads.run(self._progress[self.source(name).name].last_commit))
            self._looking[name] = looking
            looking.add_done_callback(lambda task: self._end_look(name, task))
        return await asyncio.shield(looking)  # one client that leaves does not end it for the others

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

    def _end_look(self, name: str, task: asyncio.Task[Commit | None]) -> None:
        self._looking.pop(name, None)
        if not task.cancelled():
            task.exception()  # each client has raised it, or has left
