"""Single events by their position, read in threads and cached."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.api.limits.work import Threads
from headwater.commands.owning.running_code import slow_code
from headwater.eventlog.envelope import Envelope, Position, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import EventLog, Record, record_at
from headwater.eventlog.source_positions import SourcePosition, source_ends, source_id
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import EVENTS, VIEWS
from headwater.projections.generations.rebuild.engine import holds_events

ASK_S: Final = 0.005
"""How old the end of a source may be, for a position beyond it."""


class LogReader:
    """Reads sources for requests that wait for a position.

    Events never change, so the latest `remembered` of them are cached. Reading blocks, so it is done in threads.
    """

    def __init__(self, log: EventLog, remembered: int = 4096, threads: int = 4) -> None:
        self._log = log
        self._remembered = remembered
        self._events: OrderedDict[Position, Envelope] = OrderedDict()
        self._known_ends: dict[str, int] = {}
        self._ask_again_s: dict[str, float] = {}
        self._asking = threading.Lock()
        self._threads = Threads(threads, "log-reader")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def event_at(self, position: Position) -> Envelope | None:
        """The event at `position`; None if there is none, or if it cannot be read."""
        known = self._events.get(position)
        if known is None:
            known = await self._threads.run(self._read, position)
            if known is None:
                return None
            self._events[position] = known
            while len(self._events) > self._remembered:
                self._events.popitem(last=False)
        else:
            self._events.move_to_end(position)
        return known

    async def record_at(self, place: SourcePosition) -> Record | None:
        """The record at this place of any source; None if there is none."""
        return await self._threads.run(self._record, place)

    async def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last record of each source in these topics."""
        return await self._threads.run(self._ends, topics)

    async def hold_events(self, ends: Mapping[str, int]) -> bool:
        """Whether sources have other records than heartbeats before these offsets."""
        return await self._threads.run(holds_events, self._log, {source: (0, end) for source, end in ends.items()})

    async def slow_code(self) -> Sequence[str]:
        """What handlers report of code that does not return, one line each."""
        return await self._threads.run(slow_code, self._log, now_ms())

    def _read(self, position: Position) -> Envelope | None:
        record = self._record(SourcePosition(EVENTS, position))
        try:
            return None if record is None else decode(record.value)
        except NotAnEnvelope:
            return None

    def _record(self, place: SourcePosition) -> Record | None:
        topic, partition, offset = place.topic, place.position.partition, place.position.offset
        known = self._known_ends.get(place.source, 0)
        return record_at(self._log, topic, partition, offset, known if offset < known else self._end(place))

    def _end(self, place: SourcePosition) -> int:
        """The end of a source, asked for once for all that wait for a position which does not exist yet."""
        with self._asking:
            if time.monotonic() >= self._ask_again_s.get(place.source, 0.0):
                self._known_ends[place.source] = self._log.end(place.topic, place.position.partition)
                self._ask_again_s[place.source] = time.monotonic() + ASK_S
            return self._known_ends[place.source]

    def _ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        found = (
            source_id(topic, partition)
            for topic in topics
            for partition in (self._log.stored_ends(topic) if topic.startswith(VIEWS) else range(self._log.partitions))
        )
        return source_ends(self._log, found)
