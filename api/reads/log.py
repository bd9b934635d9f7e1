"""The log, read in threads, because reading blocks: records by their place, captured databases, process instances."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headwater.api.limits import Threads
from headwater.api.reading import Applied, GenerationGone, Live
from headwater.commands.owning.running_code import slow_code
from headwater.eventlog.envelope import Envelope, Position, decode
from headwater.eventlog.errors import LogUnavailable, NotAnEnvelope
from headwater.eventlog.ports import NEXT_OFFSET, EventLog, Record, record_at, topic_ends
from headwater.eventlog.source_positions import SourcePosition, source_ends, source_id
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import EVENTS, PROCESSES, VIEWS
from headwater.projections.generations.rebuild.engine import holds_events
from headwater.projections.stores.topic.records import (
    LEDGER,
    PUBLISHED,
    Publication,
    Publications,
    progress_from_json,
    topic_of,
)
from headwater.projections.stores.topic.records import Progress as TopicProgress

ASK_S: Final = 0.005
"""How old the end of a source may be, for a position beyond it."""
PORTION_RECORDS: Final = 5_000
PORTION_BYTES: Final = 8 * 1024 * 1024
"""Of the records of one portion, unless a single one is larger."""


class LogReader:
    """Reads sources for requests that wait for a position.

    Events never change, so the latest `remembered` of them are cached. Reading blocks, so it is done in threads: those
    of questions about the whole log, which readiness asks, are others than those of records.
    """

    def __init__(self, log: EventLog, remembered: int = 4096, threads: int = 4) -> None:
        self._log = log
        self._remembered = remembered
        self._events: OrderedDict[Position, Envelope] = OrderedDict()
        self._known_ends: dict[str, int] = {}
        self._ask_again_s: dict[str, float] = {}
        self._asking = threading.Lock()
        self._threads, self._questions = Threads(threads, "log-reader"), Threads(2, "log-questions")

    def close(self) -> None:
        """End the threads."""
        self._threads.close()
        self._questions.close()

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
        return await self._questions.run(self._ends, topics)

    async def hold_events(self, ends: Mapping[str, int]) -> bool:
        """Whether sources have other records than heartbeats before these offsets."""
        return await self._questions.run(holds_events, self._log, {source: (0, end) for source, end in ends.items()})

    async def slow_code(self) -> Sequence[str]:
        """What handlers report of code that does not return, one line each."""
        return await self._questions.run(slow_code, self._log, now_ms())

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
        places = (
            source_id(topic, partition)
            for topic in topics
            for partition in (self._log.stored_ends(topic) if topic.startswith(VIEWS) else range(self._log.partitions))
        )
        return source_ends(self._log, places)


class InstanceReader:
    """Reads `processes`, in a thread, because reading blocks."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._threads = Threads(1, "instances")

    def close(self) -> None:
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
        records: list[Record] = []
        size_bytes = 0
        for record in self._log.read(PROCESSES, partition, start, end):
            if record.key != NEXT_OFFSET:
                records.append(record)
                size_bytes += len(record.value or b"")
            if len(records) >= PORTION_RECORDS or size_bytes >= PORTION_BYTES or unwanted.is_set():
                return InstanceRecords(records, record.offset + 1, ended=False)
        return InstanceRecords(records, end, ended=True)


class _Known(NamedTuple):
    """The last ledger before the end of a partition; None: there is none."""

    end: int
    progress: TopicProgress | None


class TopicLedgers:
    """Reads what the public topic of a view has.

    One question for all ends tells whether anything is new, and only that is read. Only the poll of a view reads it,
    so nothing is read twice at once.
    """

    name = "topic"
    has_guards = False

    def __init__(self, log: EventLog, patch_partitions: int, threads: int = 4) -> None:
        self._log, self._patch_partitions = log, patch_partitions
        self._publications, self._published_end = Publications(log), -1
        self._publishing = threading.Lock()
        self._known: dict[str, dict[tuple[str, int], _Known]] = {}
        """By view, then by the topic of its generation and the partition."""
        self._threads = Threads(threads, "topic-ledgers")

    def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._threads.close()

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """None: see LedgerReader."""
        return {}

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """By partition of `patches`, what the public topic has; without those in which it does not show this generation
        yet, or another one. Raises LogUnavailable, or GenerationGone if the generation was dropped."""
        return await self._threads.run(self._read, live)

    def _read(self, live: Live) -> Mapping[int, Applied]:
        topic = topic_of(live.view.name, live.generation)
        places = [(topic, partition) for partition in range(self._patch_partitions)]
        try:
            ends = self._log.ends([(PUBLISHED, 0), *places])
        except LogUnavailable as error:
            if self._log.stored_ends(topic):
                raise
            raise GenerationGone from error
        publication = self._publication(live.view.name, ends[PUBLISHED, 0])
        if publication is None or publication.generation != live.generation:
            return {}
        earlier = self._known.get(live.view.name, {})
        known = {place: self._last(*place, ends[place], earlier.get(place)) for place in places}
        self._known[live.view.name] = known
        return {
            partition: progress.ledger.applied
            for (_, partition), (_, progress) in known.items()
            if progress is not None and progress.shown == publication.offset
        }

    def _publication(self, view: str, end: int) -> Publication | None:
        """The one that is valid before this end of the topic with all of them."""
        with self._publishing:
            publication = self._publications.of(view, fresh=end != self._published_end)
            self._published_end = end
        return publication

    def _last(self, topic: str, partition: int, end: int, known: _Known | None) -> _Known:
        """The last ledger before `end`; known: before an earlier end."""
        if known is None or known.end > end or known.progress is None:
            value = self._log.last(topic, partition, LEDGER)
            return _Known(end, None if value is None else progress_from_json(value))
        values = [record.value for record in self._log.read(topic, partition, known.end, end) if record.key == LEDGER]
        last = values[-1] if values else None
        return _Known(end, known.progress if last is None else progress_from_json(last))


class InstanceRecords(NamedTuple):
    """A part of a partition with process instances. next_offset: where the next part begins. ended: nothing is left."""

    records: Sequence[Record]
    next_offset: int
    ended: bool
