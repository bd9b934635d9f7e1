"""Decides the commands of one partition, one transaction after another."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.decision import end_committed
from headwater.commands.handling.handler import Handler
from headwater.commands.handling.refold import COUNTED, UNWRITTEN, is_snapshot, version_in
from headwater.commands.handling.refusals import refusals
from headwater.commands.handling.restore import ERASURES, PURGED, RECORDED, STREAMS_KEY, restore
from headwater.commands.handling.torn_batch import (
    NOT_BEGUN,
    BatchRecord,
    Ends,
    TornBatch,
    TornEvents,
    fold_without_commands,
    noted_batch,
    torn_batch,
)
from headwater.commands.local_state.state import StateStore
from headwater.eventlog import topics
from headwater.eventlog.envelope import HEARTBEAT, Envelope, encode, timestamp_ms
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.ports import HANDLER, Entry, EventLog, PartitionWriter, Record, abort_on_error
from headwater.eventlog.programs.metrics import counter
from headwater.eventlog.times import now_ms

HEARTBEAT_S: Final = 1.0
"""How soon after a transaction a heartbeat comes at the latest; views and `after=` rely on it to pass the end of the
transaction. All partitions beat at the same multiples of this time: what they cause, from patches to the ledgers of
every store, is one batch per second then, and not one per partition.
"""
IDLE_HEARTBEAT_S: Final = 5.0
"""Between the heartbeats of an idle partition. All partitions beat at the same multiples of this time, because each
heartbeat that comes alone is a batch of every stream view over events. `replay status` and the supervisor expect some
progress within 10 s."""

MAX_PENDING_STREAMS: Final = 1_000
MAX_PENDING_BYTES: Final = 2 * 1024 * 1024
"""Of the folded states in one transaction; the last one may exceed it."""
PENDING_PAUSE_S: Final = 0.05
"""Between two transactions, so that commands do not wait."""

COMMANDS: Final = counter("commands", "Commands decided; repeated ones are left out.", ["type", "outcome"])
UNKNOWN: Final = "unknown"
"""In place of the type of a command that is not declared: whoever sends it chose its name."""

logger = logging.getLogger(__name__)


class CommandTask:
    """Decides the commands of one partition; a PartitionTask."""

    def __init__(self, log: EventLog, registry: CommandRegistry, partition: int, store: StateStore) -> None:
        """store: the known state of the partition; `close` closes it."""
        self._log, self._registry, self._partition, self._store = log, registry, partition, store
        self._torn = TornEvents()
        self._handler = Handler(registry, partition, log.partitions, store)
        self._ends = Ends(0, 0, 0, 0)
        """Of the last batch."""
        self._next_beat = 0.0
        self._pending: PendingSnapshots | None = None
        self._commands_id = ""

    def restore(self, writer: PartitionWriter, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        last = BatchRecord.of(self._log, self._partition)
        torn = None if last is None else torn_batch(self._log, self._partition, last)
        done = restore(self._log, self._registry, self._partition, self._store, stopped, torn)
        if torn is not None and not stopped():
            self._ends = self._take_back(writer, torn)
        elif last is not None:
            self._ends = last.end
        elif not stopped():
            read = (topics.EVENTS, topics.RECEIPTS, topics.SNAPSHOTS)
            ends = self._log.ends((topic, self._partition) for topic in read)
            self._ends = Ends(self._log.next_offset(self._partition), *ends.values())
            with abort_on_error(writer.begin()) as transaction:  # what comes is after this record
                transaction.append([BatchRecord(self._ends, self._ends).entry(now_ms())])
                transaction.commit()
        self._pending = PendingSnapshots(self._store)
        self._commands_id = self._log.incarnation(topics.COMMANDS)
        return f"{done.snapshots} snapshots and {done.receipts} receipts read, {done.refolded} streams folded"

    def wait_s(self) -> float:
        """See PartitionTask.wait_s."""
        wait_s = self._next_beat - time.monotonic()
        pending_s = self._pending.wait_s() if self._pending else None
        return wait_s if pending_s is None else min(wait_s, pending_s)

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> Sequence[Record]:
        """See PartitionTask.work: append and commit the decisions on `records`, then update the store."""
        self._store.check()
        now = datetime.now(UTC)
        batch = self._handler.decide(records, timestamp_ms(now))
        if self._next_beat <= time.monotonic():
            batch.heartbeat = heartbeat(self._partition, now)
            self._next_beat = time.monotonic() + idle_s(now.timestamp())
        if records:
            self._next_beat = min(self._next_beat, time.monotonic() + busy_s(now.timestamp()))
        written = self._pending.take(batch) if self._pending else {}
        number = self._store.position(COUNTED) + batch.new_streams
        positions: dict[str, int] = {}
        began_ns = time.time_ns()
        with abort_on_error(writer.begin()) as transaction:
            offsets = transaction.append(batch.entries)
            if (end := batch.snapshots_end(offsets)) is not None:
                positions[topics.SNAPSHOTS] = end
            if number != self._store.position(RECORDED):
                entry = Entry(topics.SNAPSHOTS, STREAMS_KEY, b"%d" % number, batch.now_ms)
                positions[topics.SNAPSHOTS] = transaction.append([entry])[-1] + 1
                positions[RECORDED] = positions[COUNTED] = number
            if batch.erased:
                positions[ERASURES] = self._store.position(ERASURES) + 1
                entry = Entry(topics.SNAPSHOTS, ERASURES, b"%d" % positions[ERASURES], batch.now_ms)
                positions[topics.SNAPSHOTS] = transaction.append([entry])[-1] + 1
            receipts = batch.receipts(offsets)
            if receipts:
                answers = [Entry(topics.RECEIPTS, key, value, batch.now_ms) for key, value in receipts.items()]
                positions[topics.RECEIPTS] = transaction.append(answers)[-1] + 1
            if batch.next_command is not None or written:
                ends = self._ends_of(batch, offsets, positions)
                last_event = next((entry.key for entry in reversed(batch.events) if entry.value is not None), "")
                record = BatchRecord(self._ends, ends, last_event, next(reversed(receipts), ""))
                entry = record.entry(batch.now_ms)
                positions |= noted_batch(entry, transaction.append([entry])[-1])
                self._ends = ends
            if refused := refusals(batch.addressed, receipts, batch.now_ms, self._commands_id):
                transaction.append(refused)
            transaction.commit(batch.next_command)
        if batch.traced:
            end_committed(HANDLER.name, batch.traced.values(), began_ns, batch.taken)
        self._store.apply({**batch.snapshots, **written}, receipts, positions, batch.now_ms)
        if batch.erased:
            self._store.purge(batch.erased)
            self._store.apply({}, {}, {PURGED: positions[ERASURES]})
        if self._torn:
            self._torn.forget(_versions(batch))
        known = self._registry.commands
        count_commands(
            (decision.command_type if decision.command_type in known else UNKNOWN, decision.outcome)
            for decision in batch.decisions
        )
        return records[batch.taken :]

    def _take_back(self, writer: PartitionWriter, torn: TornBatch) -> Ends:
        """Make the log what it was before a torn batch, but for its events, which the handler will adopt.

        Returns where the batch before it ended.
        """
        start, now = torn.start, now_ms()
        logger.error(
            "partition %d: Kafka has committed a part of a transaction; deciding its commands again from offset %d: "
            "%d events stay, %d receipts are taken back",
            self._partition, start.command, len(torn.events), len(torn.untrusted),
        )  # fmt: skip
        folded = fold_without_commands(self._log, self._partition, self._registry, self._store, torn)
        counted = self._store.position(COUNTED) + sum(self._store.snapshot(stream) is None for stream in folded)
        values = {stream: self._store.snapshot(stream) for stream in torn.streams} | folded
        snapshots = [
            Entry(topics.SNAPSHOTS, stream, NOT_BEGUN if value is None else value, now)
            for stream, value in values.items()
            if value is None or is_snapshot(value)
        ]
        snapshots.append(Entry(topics.SNAPSHOTS, STREAMS_KEY, b"%d" % counted, now))
        receipts = [Entry(topics.RECEIPTS, key, None, now) for key in sorted(torn.untrusted)]
        self._torn = TornEvents(torn.events)
        streams = {event.event.stream for event in torn.events}
        known = {stream: folded.get(stream) or self._store.snapshot(stream) or b"" for stream in streams}
        self._torn.forget({stream: version_in(value) for stream, value in known.items()})
        events = self._torn.start({}, max((event.offset + 1 for event in torn.events), default=start.events))
        with abort_on_error(writer.begin()) as transaction:
            end = transaction.append(snapshots)[-1] + 1
            offsets = transaction.append(receipts) or [self._log.end(topics.RECEIPTS, self._partition) - 1]
            ends = start._replace(events=events, receipts=offsets[-1] + 1, snapshots=end)
            transaction.append([BatchRecord(ends, ends).entry(now)])
            transaction.commit(start.command)
        positions = {topics.RECEIPTS: ends.receipts, topics.SNAPSHOTS: end, RECORDED: counted, COUNTED: counted}
        self._store.apply(dict(folded), {}, positions)
        self._handler = Handler(self._registry, self._partition, self._log.partitions, self._store, self._torn)
        return ends

    def _ends_of(self, batch: Batch, offsets: Sequence[int], positions: Mapping[str, int]) -> Ends:
        """Where a batch ends, with the events that are still to be adopted after it; offsets: of its entries."""
        before = self._ends
        events = offsets[len(batch.events) - 1] + 1 if batch.events else before.events
        if self._torn:
            placed = (offset + 1 for decision in batch.decisions for offset in decision.placed[-1:])
            events = self._torn.start(_versions(batch), max([events, *placed]))
        return Ends(
            before.command if batch.next_command is None else batch.next_command,
            events,
            positions.get(topics.RECEIPTS, before.receipts),
            positions.get(topics.SNAPSHOTS, before.snapshots),
        )

    def close(self) -> None:
        """See PartitionTask.close."""
        self._pending = None  # it may be reading the store
        self._store.close()


def _versions(batch: Batch) -> dict[str, int]:
    """The versions of the streams that a batch changes."""
    return {stream: decision.after.version for stream, decision in batch.changed.items() if decision.after is not None}


def count_commands(decided: Iterable[tuple[str, str]]) -> None:
    """Count the types and outcomes of committed decisions."""
    for labels, number in Counter(decided).items():
        COMMANDS.labels(*labels).inc(number)


def busy_s(now_s: float) -> float:
    """Seconds from `now_s`, since 1970, until the heartbeat after a transaction; at most HEARTBEAT_S, and never 0."""
    return HEARTBEAT_S - now_s % HEARTBEAT_S


def idle_s(now_s: float) -> float:
    """Seconds from `now_s`, since 1970, until the next heartbeat of an idle partition; at least HEARTBEAT_S."""
    return HEARTBEAT_S + (-now_s - HEARTBEAT_S) % IDLE_HEARTBEAT_S


def heartbeat(partition: int, now: datetime) -> Entry:
    """The record that shows that the partition has a live owner; compaction removes older ones."""
    name = heartbeat_key(partition)
    beat = Envelope(id=name, type=HEARTBEAT, stream=name, time=now, data={})
    return Entry(topics.EVENTS, name, encode(beat), timestamp_ms(now))


class PendingSnapshots:
    """The folded states of a partition that the log does not have; the store remembers them until they are written."""

    def __init__(self, store: StateStore) -> None:
        """Call it after the restore: later ones are not found."""
        self._store = store
        self._marks: Iterator[str] | None = (mark for mark, _ in store.snapshots(UNWRITTEN))
        self._not_before = 0.0

    def wait_s(self) -> float | None:
        """Seconds until the next may be written; None if there are none."""
        return None if self._marks is None else self._not_before - time.monotonic()

    def take(self, batch: Batch) -> dict[str, bytes | None]:
        """Add the next states to the snapshots of a batch; returns the deletions to apply after its commit."""
        if self._marks is None or (self.wait_s() or 0.0) > 0:
            return {}
        deletions: dict[str, bytes | None] = {}
        size_bytes = 0
        for mark in islice(self._marks, MAX_PENDING_STREAMS):
            stream = mark.removeprefix(f"{UNWRITTEN}/")
            deletions[mark] = None
            value = self._store.snapshot(stream)
            # a decision in the same batch replaces it
            if value is not None and is_snapshot(value) and batch.snapshots.setdefault(stream, value) is value:
                size_bytes += len(value)
            if size_bytes >= MAX_PENDING_BYTES:
                break
        if not deletions:
            self._marks = None
        self._not_before = time.monotonic() + PENDING_PAUSE_S
        return deletions
