"""Runs processes: the owner of a partition of `process-inbox` keeps its instances and appends their commands.

Instances, commands and the offset in `process-inbox` are committed together. If an instance failed at an event, its
later events wait, so that every instance sees its events in order.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from msgspec import structs

from commands.declaring.process import ProcessRegistry
from commands.declaring.registry import CommandRegistry
from commands.errors import UnreadableProcess
from commands.handling.handler import dead_letter
from commands.reacting.erasing import InstanceErasure
from commands.reacting.instance import Instance, Timer, read_instance, stopped_at
from commands.reacting.turn import Turn
from commands.reacting.waiting import PARKED_PREFIX, ParkedRecords
from eventlog import topics
from eventlog.envelope import timestamp_ms
from eventlog.ports import NEXT_OFFSET, Entry, EventLog, PartitionWriter, Record, abort_on_error

IDLE_S: Final = 60.0
MAX_FIRED_TIMERS: Final = 500
"""Timers per transaction; after a long stop, new events need not wait for all due timers."""
MAX_RESUMED: Final = 4
"""Instances per transaction that handle waiting events, and how many each handles."""
MAX_RELEASED: Final = 100

logger = logging.getLogger(__name__)


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
        """clock: returns the time in UTC."""
        self._log, self._commands, self._processes, self._partition = log, commands, processes, partition
        self._clock = clock
        self._instances: dict[str, Instance] = {}
        self._unreadable: dict[str, str | None] = {}
        """Instances that this version of the code cannot read or does not know: by record key, where they have stopped.
        Their records are not changed."""
        self._letters: list[Entry] = []
        self._waiting = ParkedRecords(log, partition)
        self._resuming: dict[str, None] = {}
        """Record keys of instances that can handle waiting events."""
        self._timers: list[tuple[int, str, str]] = []
        """(due, instance, timer), a heap; replaced and cancelled timers stay in it."""

    def restore(self, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        latest: dict[str, Record] = {}
        for record in self._log.read(topics.PROCESSES, self._partition, 0):
            if record.key.startswith(PARKED_PREFIX):
                self._waiting.restore(record)
            elif record.value is None:
                latest.pop(record.key, None)
            elif record.key != NEXT_OFFSET:
                latest[record.key] = record
            if stopped():
                break
        for key, record in latest.items():
            self._read(key, record)
        for key in self._waiting:
            self._update_resuming(key)
        return (
            f"{len(self._instances)} process instances, {len(self._unreadable)} unreadable by this code, "
            f"{len(self._waiting)} waiting events"
        )

    def wait_s(self) -> float:
        """See PartitionTask.wait_s: until the next timer."""
        if self._resuming or self._letters:
            return 0.0
        due = self._next_timer()
        return IDLE_S if due is None else due[0] / 1000 - self._clock().timestamp()

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        """See PartitionTask.work."""
        now = self._clock()
        turn = self._turn(now)
        turn.letters += self._letters
        for key in list(islice(self._resuming, MAX_RESUMED)):
            for inbox_offset, record in self._waiting.first(key, MAX_RELEASED):
                instance = turn.current(key)
                if turn.is_full or (instance is not None and instance.stopped is not None):
                    break
                turn.release(key, record, inbox_offset)
        for record in records:
            erasure = InstanceErasure.of(record)
            if turn.is_full or erasure is not None:
                self._commit(writer, turn, record.offset)
                turn = self._turn(now)
            if erasure is None:
                self._receive(record, turn)
            else:
                self._erase(writer, record, erasure, now)
        for _ in range(MAX_FIRED_TIMERS):
            due = self._next_timer()
            if due is None or due[0] > timestamp_ms(now) or turn.is_full:
                break
            heapq.heappop(self._timers)
            turn.fire(due[1], due[2])
        self._commit(writer, turn, records[-1].offset + 1 if records else None)

    def close(self) -> None:
        """See PartitionTask.close."""

    def _turn(self, now: datetime) -> Turn:
        return Turn(self._commands, self._processes, self._partition, self._instances, now)

    def _receive(self, record: Record, turn: Turn) -> None:
        key = record.key
        name = key.partition("/")[0]
        if record.value is None or not name:
            return  # erased
        instance = turn.current(key)
        if turn.is_cause(record, self._unreadable.get(key)):
            turn.refuse(record)  # else it would wait for itself
            return
        waits = (
            # unknown to this version of the code: another version may know it
            name not in self._processes.processes
            or key in self._unreadable
            or (instance is not None and instance.stopped is not None)
            or self._waiting.count(key) > turn.released[key]
            or turn.parks(key)
        )
        if waits and not turn.resumes(record):
            turn.park(record)
        else:
            turn.handle(record)

    def _erase(self, writer: PartitionWriter, record: Record, erasure: InstanceErasure, now: datetime) -> None:
        """Erase what an instance keeps, in a transaction of its own."""
        key = record.key
        with abort_on_error(writer.begin()) as begun:
            begun.append(erasure.tombstones(key, timestamp_ms(now)))
            begun.commit(record.offset + 1)
        self._waiting.forget(key, erasure.offsets(key))
        if erasure.ends:
            self._keep(key, None)
            self._unreadable.pop(key, None)
        self._update_resuming(key)

    def _commit(self, writer: PartitionWriter, turn: Turn, next_offset: int | None) -> None:
        entries = turn.entries()
        if entries or next_offset is not None:
            with abort_on_error(writer.begin()) as begun:
                offsets = begun.append(entries)
                begun.commit(next_offset)
            for record, offset in zip(turn.parked, offsets, strict=False):
                self._waiting.add(record.key, record.offset, offset)
        self._letters.clear()
        for key, instance in turn.changed.items():
            self._keep(key, instance)
        for key, count in turn.released.items():
            self._waiting.remove(key, count)
        for key in {*turn.changed, *turn.released, *(record.key for record in turn.parked)}:
            self._update_resuming(key)

    def _read(self, key: str, record: Record) -> None:
        """Add an instance of the log; an unreadable one is not changed, and its events wait."""
        name, _, instance = key.partition("/")
        process = self._processes.processes.get(name)
        if record.value is None:
            return
        if process is None:
            self._unreadable[key] = stopped_at(record.value)
            return
        try:
            self._keep(key, read_instance(process, instance, record.value))
        except UnreadableProcess as error:
            logger.error("%s/%d/%d: %s", record.topic, record.partition, record.offset, error)
            self._unreadable[key] = stopped_at(record.value)
            letter = dead_letter(record, str(error), timestamp_ms(self._clock()))
            self._letters.append(structs.replace(letter, key=f"{topics.PROCESSES}/{self._partition}/{key}"))

    def _keep(self, key: str, instance: Instance | None) -> None:
        if instance is None:
            self._instances.pop(key, None)
            return
        before = self._instances.get(key)
        running: dict[str, Timer] = {} if before is None or before.stopped else dict(before.timers)
        self._instances[key] = instance
        for name, timer in instance.timers.items():
            if running.get(name) != timer:
                heapq.heappush(self._timers, (timer.due_ms, key, name))

    def _update_resuming(self, key: str) -> None:
        """Note whether an instance can handle waiting events; if nothing waits, its timers run again."""
        instance = self._instances.get(key)
        stopped = instance is not None and instance.stopped is not None
        if key not in self._waiting:
            if self._resuming.pop(key, "none") is None and instance is not None:
                for name, timer in instance.timers.items():
                    heapq.heappush(self._timers, (timer.due_ms, key, name))
        elif stopped or key in self._unreadable or key.partition("/")[0] not in self._processes.processes:
            self._resuming.pop(key, None)
        else:
            self._resuming[key] = None

    def _next_timer(self) -> tuple[int, str, str] | None:
        while self._timers:
            due_ms, key, name = self._timers[0]
            instance = self._instances.get(key)
            timer = instance.timers.get(name) if instance and instance.stopped is None else None
            if timer is not None and timer.due_ms == due_ms and key not in self._waiting:
                return self._timers[0]
            heapq.heappop(self._timers)
        return None
