"""Decides the commands of one partition, one transaction after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from commands.declaring.registry import CommandRegistry
from commands.handling.decision_spans import end_committed
from commands.handling.handler import Handler
from commands.handling.refold import COUNTED
from commands.handling.refusals import refusals
from commands.handling.restore import RECORDED, restore
from commands.handling.unwritten import Unwritten, number_of_streams
from commands.local_state.state import StateStore
from commands.metrics import UNKNOWN, count_commands
from eventlog import topics
from eventlog.envelope import HEARTBEAT, Envelope, encode, timestamp_ms
from eventlog.heartbeats import heartbeat_key
from eventlog.ports import HANDLER, Entry, EventLog, PartitionWriter, Record, abort_on_error

HEARTBEAT_S: Final = 1.0
"""How soon after a transaction a heartbeat comes at the latest; views and `after=` rely on it to pass the end of the
transaction. All partitions beat at the same multiples of this time: what they cause, from patches to the ledgers of
every store, is one batch per second then, and not one per partition.
"""
IDLE_HEARTBEAT_S: Final = 5.0
"""Between the heartbeats of an idle partition. All partitions beat at the same multiples of this time, because each
heartbeat that comes alone is a batch of every stream view over events. `replay status` and the supervisor expect some
progress within 10 s."""


class CommandTask:
    """Decides the commands of one partition; a PartitionTask."""

    def __init__(self, log: EventLog, registry: CommandRegistry, partition: int, store: StateStore) -> None:
        """store: the known state of the partition; `close` closes it."""
        self._log, self._registry, self._partition, self._store = log, registry, partition, store
        self._handler = Handler(registry, partition, log.partitions, store)
        self._next_beat = 0.0
        self._unwritten: Unwritten | None = None
        self._commands_id = ""

    def restore(self, stopped: Callable[[], bool]) -> str:
        """See PartitionTask.restore."""
        done = restore(self._log, self._registry, self._partition, self._store, stopped)
        self._unwritten = Unwritten(self._store)
        self._commands_id = self._log.incarnation(topics.COMMANDS)
        return f"{done.snapshots} snapshots and {done.receipts} receipts read, {done.refolded} streams folded"

    def wait_s(self) -> float:
        """See PartitionTask.wait_s."""
        wait_s = self._next_beat - time.monotonic()
        unwritten_s = self._unwritten.wait_s() if self._unwritten else None
        return wait_s if unwritten_s is None else min(wait_s, unwritten_s)

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
        written = self._unwritten.take(batch) if self._unwritten else {}
        number = number_of_streams(self._store, batch)
        positions: dict[str, int] = {}
        began_ns = time.time_ns()
        with abort_on_error(writer.begin()) as transaction:
            offsets = transaction.append(batch.entries)
            if (end := batch.snapshots_end(offsets)) is not None:
                positions[topics.SNAPSHOTS] = end
            if number is not None:
                positions[topics.SNAPSHOTS] = transaction.append([number])[-1] + 1
                positions[RECORDED] = positions[COUNTED] = int(number.value or b"")
            receipts = batch.receipts(offsets)
            if receipts:
                answers = [Entry(topics.RECEIPTS, key, value, batch.now_ms) for key, value in receipts.items()]
                positions[topics.RECEIPTS] = transaction.append(answers)[-1] + 1
            if refused := refusals(records[: batch.taken], receipts, batch.now_ms, self._commands_id, batch.traced):
                transaction.append(refused)
            transaction.commit(batch.next_command)
        if batch.traced:
            end_committed(HANDLER.name, batch.traced.values(), began_ns, batch.taken)
        self._store.apply({**batch.snapshots, **written}, receipts, positions, batch.now_ms)
        self._store.purge(batch.erased)
        known = self._registry.commands
        count_commands(
            (each.command_type if each.command_type in known else UNKNOWN, each.outcome) for each in batch.decisions
        )
        return records[batch.taken :]

    def close(self) -> None:
        """See PartitionTask.close."""
        self._unwritten = None  # it may be reading the store
        self._store.close()


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
