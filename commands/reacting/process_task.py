"""Runs processes: the owner of a partition of `process-inbox` keeps its instances and appends their commands.

Instances, commands and the offset in `process-inbox` are committed together. If an instance failed at an event, its
later events wait, so that every instance sees its events in order.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import structs
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import UnreadableProcess
from headwater.commands.handling.decision import end_committed
from headwater.commands.handling.handler import dead_letter
from headwater.commands.handling.torn_batch import noted_batch
from headwater.commands.local_state.state import BoundedCache, StateStore
from headwater.commands.owning.resume_offset import read_topics
from headwater.commands.reacting.erasing import InstanceErasure
from headwater.commands.reacting.instance import Instance, read_instance
from headwater.commands.reacting.instance_restore import InstanceRestore
from headwater.commands.reacting.instance_store import InstanceStore, read_waiting
from headwater.commands.reacting.starts import Removed
from headwater.commands.reacting.turn import Turn
from headwater.eventlog import topics
from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.ports import PROCESSES, EventLog, PartitionWriter, Record, abort_on_error
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.eventlog.times import now_ms

MAX_INSTANCES: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of their records; as objects they take several times as much memory."""


IDLE_S: Final = 60.0
NOTE_TIME_S: Final = 3_600.0
"""How often an idle owner notes the time in its store; a store of an old time is not used after a restart."""
MAX_FIRED_TIMERS: Final = 500
"""Timers per transaction; after a long stop, new events need not wait for all due timers."""
MAX_RESUMED: Final = 4
"""Instances per transaction that handle waiting events, and how many each handles."""
MAX_RELEASED: Final = 100
OFFSET_BITS: Final = 40
"""Of an offset in `process-inbox`, among those of all topics of this name that there were."""
MAX_LETTERS: Final = 100
"""Dead letters of unreadable instances per transaction."""

logger = logging.getLogger(__name__)


class ProcessTask:
    """Handles the events of one partition's instances, and their timers; a PartitionTask."""

    def __init__(
        self,
        log: EventLog,
        commands: CommandRegistry,
        processes: ProcessRegistry,
        removed: Removed,
        partition: int,
        store: StateStore,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """removed: see settle_inputs. store: of the partition; `close` closes it. clock: returns the time in UTC."""
        self._log, self._commands, self._processes, self._partition = log, commands, processes, partition
        self._removed, self._clock = removed, clock
        self.store = InstanceStore(store, processes.processes.__contains__)
        self._recent = BoundedCache[Instance](MAX_INSTANCES, MAX_BYTES)
        self._is_personal = any(process.is_personal for process in processes.processes.values())
        self._erasures = 0
        """Those that the vault had noticed when instances were last forgotten because of one."""
        self.next_due_ms: int | None = None
        """When the next timer is due, since 1970; None if there is none. Another thread may read it."""
        self._noted = time.monotonic()
        self._reported_newer: set[tuple[str, str]] = set()
        self._first_place: int | None = None
        """Of records of this `process-inbox` among those that wait: those of one before it have the same offsets."""

    def restore(self, writer: PartitionWriter, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        records = InstanceRestore(self._log, self._processes, self._partition, self.store).run(stopped)
        self.next_due_ms = self.store.next_due_ms()
        OWNED.add(self._partition, self)
        return (
            f"{records} records of process instances read, {self.store.unreadable_instances} instances unreadable by "
            f"this code, {sum(1 for _ in self.store.waiting_keys())} with waiting events"
        )

    def wait_s(self) -> float:
        """See PartitionTask.wait_s: until the next timer."""
        if self.store.has_ready or self.store.has_letters:
            return 0.0
        idle_s = min(IDLE_S, self._noted + NOTE_TIME_S - time.monotonic())
        return idle_s if self.next_due_ms is None else min(idle_s, self.next_due_ms / 1000 - self._clock().timestamp())

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        """See PartitionTask.work."""
        self.store.check()
        if self._is_personal and (erasures := installed().erasures) != self._erasures:
            self._erasures = erasures
            self._recent.clear()  # records are decrypted again
        now = self._clock()
        turn = self._turn(now)
        for key, reason in self.store.letters(MAX_LETTERS):
            if not turn.is_full:
                self._report(key, reason, turn)
        for key in self.store.ready(MAX_RESUMED):
            self._resume(key, turn)
        for record in records:
            erasure = InstanceErasure.of(record)
            if turn.is_full or erasure is not None:
                self._commit(writer, turn, record.offset)
                turn = self._turn(now)
            if erasure is None:
                self._receive(record, turn)
            else:
                self._erase(writer, record, erasure, now)
        for timer in self.store.due(timestamp_ms(now), MAX_FIRED_TIMERS):
            if turn.is_full:
                break
            self.store.touch(timer.key)
            if self._is_readable(timer.key, turn) and not turn.parks(timer.key):
                turn.fire(timer.key, timer.name)
        self._commit(writer, turn, records[-1].offset + 1 if records else None)

    def close(self) -> None:
        """See PartitionTask.close."""
        OWNED.remove(self._partition, self)
        self.store.close()

    def _turn(self, now: datetime) -> Turn:
        if self._first_place is None:  # now the owner has noted which topic it reads
            self._first_place = read_topics(self._log, PROCESSES)[self._partition].number << OFFSET_BITS
        return Turn(
            self._commands, self._processes, self._removed, self._partition, self._instance, now, self._first_place
        )

    def _instance(self, key: str) -> Instance | None:
        """An instance as of the last transaction; raises UnreadableProcess."""
        instance = self._recent.get(key)
        if instance is not None:
            return instance
        name, _, rest = key.partition("/")
        value, process = self.store.instance(key), self._processes.processes.get(name)
        if value is None or process is None:
            return None
        instance = read_instance(process, rest, value)
        self._recent.put(key, instance, len(value))
        return instance

    def _is_readable(self, key: str, turn: Turn) -> bool:
        """Whether this code knows the process, and can read the instance if there is one."""
        if key.partition("/")[0] not in self._processes.processes or self.store.unreadable(key) is not None:
            return False
        try:
            turn.current(key)
        except UnreadableProcess as error:
            # found only now, because its state has the shape that is declared
            logger.error("%s/%d/%s: %s", topics.PROCESSES, self._partition, key, error)
            self.store.mark_unreadable(key, self.store.instance(key) or b"", str(error))
            return False
        return True

    def _receive(self, record: Record, turn: Turn) -> None:
        key = record.key
        if record.value is None or not key.partition("/")[0]:
            return  # erased
        if not self._is_readable(key, turn):
            if turn.is_cause(record, self.store.unreadable(key) or None):
                turn.refuse(record)  # else it would wait for itself
            else:
                turn.park(record)
            return
        instance = turn.current(key)
        is_stopped = instance is not None and instance.stopped is not None
        waits = is_stopped or turn.parks(key) or self.store.count(key) > turn.released[key]
        if waits and not turn.resumes(record):
            turn.park(record)
        elif not self._is_newer(record, turn):
            turn.handle(record)
        elif turn.resumes(record):
            turn.refuse(record)
        else:
            turn.park(record)

    def _resume(self, key: str, turn: Turn) -> None:
        """Let an instance handle the first records that wait for it."""
        self.store.touch(key)
        if not self._is_readable(key, turn):
            return
        places = self.store.waiting(key, MAX_RELEASED)
        if not places:
            self.store.hold(key)  # else it would be looked at without end
        for inbox_offset, record in read_waiting(self._log, self._partition, key, places):
            instance = turn.current(key)
            if turn.is_full or (instance is not None and instance.stopped is not None):
                return
            if record is not None and self._is_newer(record, turn):
                self.store.hold(key)
                return
            turn.release(key, record, inbox_offset)

    def _is_newer(self, record: Record, turn: Turn) -> bool:
        """Whether only newer code can handle a record: another owner may run it already."""
        kind = turn.newer_type(record)
        name = record.key.partition("/")[0]
        if kind is not None and (name, kind) not in self._reported_newer:
            self._reported_newer.add((name, kind))
            logger.warning(
                'process "%s" gets a "%s" that this version of the code does not handle: its instances wait for newer '
                "code",
                name, kind,
            )  # fmt: skip
        return kind is not None

    def _report(self, key: str, reason: str, turn: Turn) -> None:
        """Make an unreadable instance a dead letter; its record is not changed."""
        self.store.report(key)
        value = self.store.instance(key)
        if value is not None:
            record = Record(topics.PROCESSES, self._partition, -1, key, value, timestamp_ms(self._clock()))
            letter = dead_letter(record, reason, record.timestamp_ms)
            turn.add_letter(structs.replace(letter, key=f"{topics.PROCESSES}/{self._partition}/{key}"))

    def _erase(self, writer: PartitionWriter, record: Record, erasure: InstanceErasure, now: datetime) -> None:
        """Erase what an instance keeps, in a transaction of its own."""
        key = record.key
        with abort_on_error(writer.begin()) as begun:
            offsets = begun.append(erasure.tombstones(key, timestamp_ms(now)))
            begun.commit(record.offset + 1)
        for inbox_offset in erasure.offsets(key):
            self.store.release(key, inbox_offset)
        if erasure.ends:
            self.store.put(key, None)
            self.store.mark_readable(key)
            self._recent.forget(key)
        self._write({topics.PROCESSES: offsets[-1] + 1} if offsets else {})
        if erasure.ends:
            self.store.purge(key)

    def _commit(self, writer: PartitionWriter, turn: Turn, next_offset: int | None) -> None:
        entries = turn.entries()
        positions: dict[str, int] = {}
        if entries or next_offset is not None:
            began_ns = time.time_ns()
            with abort_on_error(writer.begin()) as begun:
                offsets = begun.append(entries)
                begun.commit(next_offset)
            if turn.traced:
                end_committed(PROCESSES.name, turn.traced, began_ns, len(entries))
            written = [stored for stored in zip(entries, offsets, strict=True) if stored[0].topic == topics.PROCESSES]
            for entry, offset in written[-1:]:
                positions |= {topics.PROCESSES: offset + 1, **noted_batch(entry, offset)}
            for record, offset in zip(turn.parked, offsets, strict=False):
                self.store.park(record.key, record.offset, offset)
        for key, (instance, value) in turn.changed.items():
            self.store.put(key, value)
            if instance is None or value is None:
                self._recent.forget(key)
            else:
                self._recent.put(key, instance, len(value))
        for key, inbox_offset in turn.released_places:
            self.store.release(key, inbox_offset)
        self._write(positions)

    def _write(self, positions: Mapping[str, int]) -> None:
        """Write the changes to the store, with the offsets up to which topics were read."""
        self._recent.shrink()
        self.store.flush(positions, now_ms())
        self.next_due_ms = self.store.next_due_ms()
        self._noted = time.monotonic()


class ProcessMetrics(Collector):
    """The instances of all partitions that are owned, by process, and their timers."""

    def __init__(self) -> None:
        self._owned: dict[int, ProcessTask] = {}

    def add(self, partition: int, owner: ProcessTask) -> None:
        """Measure a partition, from now on by this owner."""
        self._owned[partition] = owner

    def remove(self, partition: int, owner: ProcessTask) -> None:
        """Measure a partition no more, unless it has another owner since."""
        if self._owned.get(partition) is owner:
            del self._owned[partition]

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        owned = dict(self._owned)
        instances, stopped, timers = Counter[str](), Counter[str](), Counter[str]()
        for owner in owned.values():
            for process, count in list(owner.store.counts.of_process.items()):
                instances[process] += count.instances
                stopped[process] += count.stopped
                timers[process] += count.timers
        for name, what, numbers in (
            ("instances", "Instances of a process.", instances),
            ("stopped", "Instances that have stopped at an event, which is a dead letter.", stopped),
            ("timers", "Timers that instances have set.", timers),
        ):
            metric = GaugeMetricFamily(f"headwater_process_{name}", what, labels=["process"])
            for process, number in numbers.items():
                metric.add_metric([process], number)
            yield metric
        parked = GaugeMetricFamily(
            "headwater_process_parked", "Events that wait for instances that have stopped.", labels=["partition"]
        )
        unreadable = GaugeMetricFamily(
            "headwater_process_unreadable",
            "Instances that this code cannot read or does not know.",
            labels=["partition"],
        )
        due = GaugeMetricFamily(
            "headwater_process_timer_due_timestamp_seconds",
            "When the next timer is due: it is late if this is in the past.",
            labels=["partition"],
        )
        for partition, owner in owned.items():
            parked.add_metric([str(partition)], owner.store.parked)
            unreadable.add_metric([str(partition)], owner.store.unreadable_instances)
            if (next_due_ms := owner.next_due_ms) is not None:
                due.add_metric([str(partition)], next_due_ms / 1000)
        yield parked
        yield unreadable
        yield due


OWNED: Final = ProcessMetrics()
"""Of this process."""
REGISTRY.register(OWNED)
