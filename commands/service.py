"""The handler process: a place in the group, and a worker for each partition that it owns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from commands.handler import Handler
from commands.registry import CommandRegistry
from commands.restore import restore
from commands.state import MemoryStore, StateStore
from eventlog import topics
from eventlog.envelope import HEARTBEAT, Envelope, encode, timestamp_ms
from eventlog.errors import EventLogError, Fenced
from eventlog.ports import Entry, EventLog, Membership, PartitionWriter, Record

BATCH_COMMANDS = 2_000
HEARTBEAT_S = 1.0
POLL_S = 0.2
"""How long a worker may be deaf to being stopped while no command comes."""
MEMBER_POLL_S = 0.05
"""How long a transaction may carry the group's metadata of before a rebalance."""
FENCED_PAUSE_S = 2.0
"""Long enough for a group to take the partition from whoever lost it without knowing."""
MAX_PAUSE_S = 5.0
MAX_ATTEMPTS = 120
"""About ten minutes without one transaction: then it is for a supervisor to decide."""

logger = logging.getLogger(__name__)


class HandlerService:
    """Handles the commands of the partitions that the group gives this process."""

    def __init__(
        self, log: EventLog, registry: CommandRegistry, new_store: Callable[[int], StateStore] | None = None
    ) -> None:
        """new_store: makes the store of a partition that this process takes over."""
        self._log = log
        self._registry = registry
        self._new_store = new_store or (lambda _: MemoryStore())
        self._workers: dict[int, PartitionWorker] = {}

    def run(self, stopped: threading.Event) -> None:
        """Serve until `stopped` is set; raises where a worker gave up."""
        member = self._log.join(self._revoke)
        try:
            while not stopped.is_set():
                assigned = member.poll(MEMBER_POLL_S)
                for partition in sorted(assigned - self._workers.keys()):
                    logger.info("partition %d: taking it over", partition)
                    store = self._new_store(partition)
                    worker = PartitionWorker(self._log, self._registry, partition, store, member)
                    self._workers[partition] = worker
                    worker.start()
                for worker in self._workers.values():
                    worker.check()
        finally:
            self._revoke(frozenset(self._workers))
            member.close()

    def _revoke(self, partitions: frozenset[int]) -> None:
        workers = [self._workers.pop(partition) for partition in partitions & self._workers.keys()]
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
            logger.info("partition %d: given up", worker.partition)


class PartitionWorker(threading.Thread):
    """The thread that owns one partition: restore, then transaction after transaction."""

    def __init__(
        self, log: EventLog, registry: CommandRegistry, partition: int, store: StateStore, member: Membership | None
    ) -> None:
        super().__init__(name=f"partition-{partition}", daemon=True)
        self.partition = partition
        self._log, self._registry, self._store, self._member = log, registry, store, member
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._attempts = 0

    def stop(self) -> None:
        """Finish the open transaction, then end the thread."""
        self._stopped.set()

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """Serve until stopped. After any error of the log nothing is known: own, restore and decide again."""
        while not self._stopped.is_set():
            try:
                self._serve()
            except EventLogError as error:
                self._attempts += 1
                if self._attempts >= MAX_ATTEMPTS:
                    self._failure = error
                    return
                pause_s = FENCED_PAUSE_S if isinstance(error, Fenced) else min(MAX_PAUSE_S, 0.1 * 2**self._attempts)
                logger.warning(
                    "partition %d: attempt %d failed, trying again in %.1f s: %s",
                    self.partition, self._attempts, pause_s, error,
                )  # fmt: skip
                self._stopped.wait(pause_s)
            except BaseException as error:
                logger.exception("partition %d: the worker ends", self.partition)
                self._failure = error
                return

    def _serve(self) -> None:
        started = time.monotonic()
        writer = self._log.own(self.partition, self._member)
        try:
            restore(self._log, self._registry, self.partition, self._store)
            # only now: an earlier owner's last transaction has ended, one way or the other
            next_command = self._log.next_command(self.partition)
            tail = self._log.tail(topics.COMMANDS, {self.partition: next_command})
            logger.info(
                "partition %d: serving from command %d on, restored in %.2f s",
                self.partition, next_command, time.monotonic() - started,
            )  # fmt: skip
            try:
                handler = Handler(self._registry, self.partition, self._log.partitions, self._store)
                next_beat = 0.0
                while not self._stopped.is_set():
                    now = time.monotonic()
                    records = tail.poll(BATCH_COMMANDS, min(POLL_S, max(0.0, next_beat - now)))
                    beat = time.monotonic() >= next_beat
                    if beat:
                        next_beat = time.monotonic() + HEARTBEAT_S
                    if records or beat:
                        self._transact(writer, handler, records, beat)
                        self._attempts = 0
            finally:
                tail.close()
        finally:
            writer.close()

    def _transact(self, writer: PartitionWriter, handler: Handler, records: list[Record], beat: bool) -> None:
        """Append and commit all that `records` cause, then let the store know it."""
        now = datetime.now(UTC)
        batch = handler.decide(records, timestamp_ms(now))
        entries = [heartbeat(self.partition, now)] if beat else []
        events = len(batch.events)
        entries = [*batch.events, *entries, *batch.entries[events:]]
        positions: dict[str, int] = {}
        transaction = writer.begin()
        try:
            offsets = transaction.append(entries)
            receipts = batch.receipts(offsets)
            if receipts:
                answers = [Entry(topics.RECEIPTS, key, value, batch.now_ms) for key, value in receipts.items()]
                positions[topics.RECEIPTS] = transaction.append(answers)[-1] + 1
            transaction.commit(batch.next_command)
        except EventLogError:
            transaction.abort()
            raise
        for entry, offset in zip(entries, offsets, strict=True):
            if entry.topic == topics.SNAPSHOTS:
                positions[topics.SNAPSHOTS] = offset + 1
        self._store.apply(batch.snapshots, receipts, positions)


def heartbeat(partition: int, now: datetime) -> Entry:
    """The sign that the partition's owner lives, which compaction removes again."""
    name = f"heartbeat/{partition}"
    beat = Envelope(id=name, type=HEARTBEAT, stream=name, time=now, data={})
    return Entry(topics.EVENTS, name, encode(beat), timestamp_ms(now))
