"""The log of process instances in portions; their owners keep the instances themselves on disks of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from headwater.api.limits.work import Threads
from headwater.api.ports import InstanceRecords
from headwater.eventlog.ports import NEXT_OFFSET, EventLog, Record, topic_ends
from headwater.eventlog.topics import PROCESSES

PORTION_RECORDS: Final = 5_000
PORTION_BYTES: Final = 8 * 1024 * 1024
"""Of the records of one portion, unless a single one is larger."""


class InstanceReader:
    """Reads `processes`, in a thread, because reading blocks."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._threads = Threads(1, "instances")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the thread."""
        self._threads.close()

    async def ends(self) -> Sequence[int]:
        """The offset after the last record of each partition; raises LogUnavailable."""
        return await self._threads.run(self._ends)

    async def portion(self, partition: int, start: int) -> InstanceRecords:
        """The next records of a partition from an offset on; raises LogUnavailable."""
        return await self._threads.run_while_wanted(self._portion, partition, start)

    def _ends(self) -> list[int]:
        return list(topic_ends(self._log, PROCESSES, range(self._log.partitions)).values())

    def _portion(self, unwanted: threading.Event, partition: int, start: int) -> InstanceRecords:
        end = self._log.end(PROCESSES, partition)
        found: list[Record] = []
        size_bytes = 0
        for record in self._log.read(PROCESSES, partition, start, end):
            if record.key != NEXT_OFFSET:
                found.append(record)
                size_bytes += len(record.value or b"")
            if len(found) >= PORTION_RECORDS or size_bytes >= PORTION_BYTES or unwanted.is_set():
                return InstanceRecords(found, record.offset + 1, ended=False)
        return InstanceRecords(found, end, ended=True)
