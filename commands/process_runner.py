"""Running processes: events are routed to the partition of their instance, and handled there, one transaction each.

An order hears of its stock from other partitions than its own. So the owner of a partition of `events` copies what
concerns an instance into `process-inbox`, by the instance's key, and the owner of that partition keeps the instance
in `processes` and appends its commands. Offsets, instances and commands are committed together.
"""

from __future__ import annotations

import heapq
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from commands.aggregate import Event
from commands.codec import read_event
from commands.handler import dead_letter
from commands.process import AnyProcess, ProcessRegistry
from commands.process_instance import Instance, begin, read_instance, write_instance
from commands.registry import CommandRegistry
from eventlog import topics
from eventlog.envelope import Envelope, decode, timestamp_ms
from eventlog.errors import EventLogError, NotAnEnvelope
from eventlog.ports import Entry, EventLog, PartitionWriter, Record, Transaction

NOTE_S: Final = 5.0
"""How long a router may leave its place uncommitted while no event concerns a process: so much is read again."""
IDLE_S: Final = 60.0
ROUTED_BY: Final = "router"
"""End of the keys of dead letters that routers write: the read side may find fault with the same event."""

logger = logging.getLogger(__name__)


class RoutingTask:
    """Copies the events of one partition that concern processes into `process-inbox`; a PartitionTask."""

    def __init__(
        self, commands: CommandRegistry, processes: ProcessRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: tells the time in seconds, from any start."""
        self._commands, self._processes, self._clock = commands, processes, clock
        self._aggregates = {event_type.partition(".")[0] for event_type in processes.by_event}
        self._noted = clock()

    def restore(self, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore: the committed offset is all there is to know."""
        return "nothing to restore"

    def wait_s(self) -> float:
        """See PartitionTask.wait_s: a router does nothing unasked."""
        return IDLE_S

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        """See PartitionTask.work."""
        if not records:
            return
        entries = [entry for record in records for entry in self.route(record)]
        if entries or self._clock() - self._noted >= NOTE_S:
            with transaction(writer, records) as begun:
                begun.append(sorted(entries, key=_topic))
            self._noted = self._clock()

    def close(self) -> None:
        """See PartitionTask.close."""

    def route(self, record: Record) -> Iterator[Entry]:
        """What is appended for one event: a copy for each process that it concerns, or a dead letter."""
        # the key starts with the aggregate: most events need not be read
        if record.value is None or record.key.partition("/")[0] not in self._aggregates:
            return
        try:
            envelope = decode(record.value)
            processes = self._processes.by_event.get(envelope.type, ())
            event = _typed(self._commands, envelope) if processes else None
        except NotAnEnvelope as error:
            logger.warning("%s/%d/%d is a dead letter: %s", record.topic, record.partition, record.offset, error)
            yield dead_letter(record, str(error), record.timestamp_ms, asked_by=ROUTED_BY)
            return
        for process in processes:
            key = f"{process.name}/{getattr(event, process.key)}"
            # with the time of now: retention would delete old events before they are handled
            yield Entry(topics.INBOX, key, record.value, time.time_ns() // 1_000_000)


class ProcessTask:
    """Handles the events of one partition's instances, and their timers; a PartitionTask.

    Every instance that has not ended is in memory.
    """

    def __init__(
        self,
        log: EventLog,
        commands: CommandRegistry,
        processes: ProcessRegistry,
        partition: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """clock: tells the time, in UTC."""
        self._log, self._commands, self._processes, self._partition = log, commands, processes, partition
        self._clock = clock
        self._instances: dict[str, Instance] = {}
        self._timers: list[tuple[int, str, str]] = []
        """(due, instance, timer), a heap; those that were set anew or taken back are left in it."""

    def restore(self, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore; raises UnreadableProcess."""
        latest: dict[str, bytes] = {}
        for record in self._log.read(topics.PROCESSES, self._partition, 0):
            if record.value is None:
                latest.pop(record.key, None)
            else:
                latest[record.key] = record.value
            if stopped():
                break
        for key, value in latest.items():
            name, _, instance = key.partition("/")
            process = self._processes.processes.get(name)
            if process is not None:  # else it is declared no more
                self._keep(key, read_instance(process, instance, value))
        return f"{len(self._instances)} instances of processes"

    def wait_s(self) -> float:
        """See PartitionTask.wait_s: until the next timer."""
        due = self._next_timer()
        return IDLE_S if due is None else due[0] / 1000 - self._clock().timestamp()

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        """See PartitionTask.work."""
        now = self._clock()
        turn = _Turn(self._instances, now)
        for record in records:
            self._handle(record, turn)
        while (due := self._next_timer()) is not None and due[0] <= timestamp_ms(now):
            heapq.heappop(self._timers)
            turn.ring(due[1], due[2])
        entries = turn.entries()
        if entries or records:
            with transaction(writer, records) as begun:
                begun.append(entries)
        for key, instance in turn.changed.items():
            self._keep(key, instance)

    def close(self) -> None:
        """See PartitionTask.close."""

    def _handle(self, record: Record, turn: _Turn) -> None:
        name, _, key = record.key.partition("/")
        process = self._processes.processes.get(name)
        if process is None or record.value is None:
            return  # declared no more, or erased
        envelope = None
        try:
            envelope = decode(record.value)
            if envelope.type in process.events:
                turn.handle(process, key, _typed(self._commands, envelope), envelope)
        except Exception as error:  # a user's rules may raise anything; the partition must go on
            error_id = secrets.token_hex(8)
            logger.exception('error %s: process "%s" failed at %s/%d', error_id, name, record.topic, record.offset)
            reason = f'process "{name}" failed, error {error_id}: {error.__class__.__name__}: {error}'
            turn.dead_letters.append(dead_letter(record, reason, timestamp_ms(turn.now)))
            if envelope is not None:
                turn.miss(record.key, envelope.id)

    def _keep(self, key: str, instance: Instance | None) -> None:
        if instance is None:
            self._instances.pop(key, None)
            return
        self._instances[key] = instance
        for name, timer in instance.timers.items():
            heapq.heappush(self._timers, (timer.due_ms, key, name))

    def _next_timer(self) -> tuple[int, str, str] | None:
        while self._timers:
            due_ms, key, name = self._timers[0]
            instance = self._instances.get(key)
            timer = instance.timers.get(name) if instance else None
            if timer is not None and timer.due_ms == due_ms:
                return self._timers[0]
            heapq.heappop(self._timers)
        return None


class _Turn:
    """What one transaction changes: instances by record key (None: ended), and what is appended."""

    def __init__(self, known: dict[str, Instance], now: datetime) -> None:
        self.now = now
        self.changed: dict[str, Instance | None] = {}
        self.commands: list[Entry] = []
        self.dead_letters: list[Entry] = []
        self._known = known

    def handle(self, process: AnyProcess, key: str, event: Event, envelope: Envelope) -> None:
        record_key = f"{process.name}/{key}"
        instance = self._current(record_key) or begin(process, key, event)
        if instance is not None:
            self._take(record_key, *instance.handle(event, envelope, self.now))

    def miss(self, record_key: str, event_id: str) -> None:
        """Note that an instance could not handle an event; one that has not begun handles it as its first."""
        instance = self._current(record_key)
        if instance is not None:
            self.changed[record_key] = replace(instance, missed=instance.missed | {event_id})

    def ring(self, record_key: str, timer: str) -> None:
        instance = self._current(record_key)
        if instance is None or timer not in instance.timers:
            return  # what came in this very turn has ended it, or taken the timer back
        if instance.timers[timer].due_ms > timestamp_ms(self.now):
            return
        try:
            self._take(record_key, *instance.ring(timer, self.now))
        except Exception:  # a user's rules may raise anything; the partition must go on
            logger.exception('process instance "%s" failed at its timer "%s"', record_key, timer)

    def entries(self) -> list[Entry]:
        """All that is appended, topic by topic."""
        now_ms = timestamp_ms(self.now)
        instances = [
            Entry(topics.PROCESSES, key, None if instance is None else write_instance(instance), now_ms)
            for key, instance in self.changed.items()
        ]
        return [*instances, *self.commands, *self.dead_letters]

    def _current(self, record_key: str) -> Instance | None:
        return self.changed[record_key] if record_key in self.changed else self._known.get(record_key)

    def _take(self, record_key: str, instance: Instance | None, commands: list[Entry]) -> None:
        if instance is not self._current(record_key):
            self.changed[record_key] = instance
        self.commands += commands


@contextmanager
def transaction(writer: PartitionWriter, records: Sequence[Record]) -> Iterator[Transaction]:
    """A transaction that commits the place after `records`; taken back where the log fails."""
    begun = writer.begin()
    try:
        yield begun
        begun.commit(records[-1].offset + 1 if records else None)
    except EventLogError:
        begun.abort()
        raise


def _typed(registry: CommandRegistry, envelope: Envelope) -> Event:
    aggregate = registry.aggregates.get(envelope.type.partition(".")[0])
    if aggregate is None:
        raise NotAnEnvelope(f'no aggregate has the event "{envelope.type}"')
    return read_event(aggregate, envelope)


def _topic(entry: Entry) -> str:
    return entry.topic
