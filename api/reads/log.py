"""Single events by their position, read in threads and cached."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from eventlog import topics
from eventlog.envelope import Envelope, Position, decode
from eventlog.errors import NotAnEnvelope
from eventlog.ports import EventLog


class LogReader:
    """Reads `events` for requests that wait for a position.

    Events never change, so the latest `remembered` of them are cached. Reading blocks, so it is done in threads.
    """

    def __init__(self, log: EventLog, remembered: int = 4096, threads: int = 4) -> None:
        self._log = log
        self._remembered = remembered
        self._events: OrderedDict[Position, Envelope] = OrderedDict()
        self._known_ends: dict[int, int] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="log-reader")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def event_at(self, position: Position) -> Envelope | None:
        """The event at `position`; None if there is none, or if it cannot be read."""
        known = self._events.get(position)
        if known is None:
            known = await asyncio.get_running_loop().run_in_executor(self._threads, self._read, position)
            if known is None:
                return None
            self._events[position] = known
            while len(self._events) > self._remembered:
                self._events.popitem(last=False)
        else:
            self._events.move_to_end(position)
        return known

    async def ends(self) -> Mapping[int, int]:
        """The offset after the last event of each partition."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ends)

    def _read(self, position: Position) -> Envelope | None:
        if position.offset >= self._known_ends.get(position.partition, 0):
            # a reader that starts after the end would be sent to the beginning
            end = self._log.end(topics.EVENTS, position.partition)
            self._known_ends[position.partition] = end
            if position.offset >= end:
                return None
        for record in self._log.read(topics.EVENTS, position.partition, position.offset, position.offset + 1):
            if record.offset == position.offset:
                try:
                    return decode(record.value)
                except NotAnEnvelope:
                    return None
        return None

    def _ends(self) -> Mapping[int, int]:
        return {partition: self._log.end(topics.EVENTS, partition) for partition in range(self._log.partitions)}
