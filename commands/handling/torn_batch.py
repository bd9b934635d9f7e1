"""Finds a transaction of which Kafka committed only a part, and takes its records back but for the events.

A transaction of a handler writes to three topics. Its last record in `snapshots` is a BatchRecord, which says where it
began and ended in each of them. If something comes after the last one, or the log lacks what it names, a batch is torn.
Events are facts that others may have read, so they stay: the handler decides the batch again in the same order, and
adopts them (see `TornEvents`) instead of appending them a second time. Receipts that promise other events go, and
snapshots become what they were.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from headwater.commands.codec import TypedCommand, fold, write_snapshot
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.commands.handling.decision import Decision, ReceivedCommand, StreamState, decide, decided_head
from headwater.commands.handling.erasing import ERASE
from headwater.commands.handling.refold import is_snapshot, version_in
from headwater.commands.local_state.state import StateStore
from headwater.commands.receipt import Receipt
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, decode, timestamp_us
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import Entry, EventLog, Record, record_at

logger = logging.getLogger(__name__)

BATCH_KEY: Final = "batch"
"""Key of the BatchRecord in `snapshots`; no stream has it, since it has no slash."""


NOT_BEGUN: Final = b'{"version":0}'
"""Value of a stream in `snapshots` that has no event yet: only a torn batch has begun it. After a tombstone, the stream
would go on from the version that the torn snapshot had.
"""


class Ends(NamedTuple):
    """Offsets: of the next command, and after the last record in `events`, `receipts` and `snapshots`."""

    command: int
    events: int
    receipts: int
    snapshots: int


class BatchRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a transaction wrote: `start` to `end`, the last event that it did not erase, and the last receipt."""

    start: Ends
    end: Ends
    last_event: str = ""
    last_receipt: str = ""

    def entry(self, now_ms: int) -> Entry:
        """The record to append."""
        return Entry(topics.SNAPSHOTS, BATCH_KEY, msgspec.json.encode(self), now_ms)

    @classmethod
    def of(cls, log: EventLog, partition: int) -> BatchRecord | None:
        """The latest one of a partition; None if it has none."""
        value = log.last(topics.SNAPSHOTS, partition, BATCH_KEY)
        return None if value is None else msgspec.json.decode(value, type=cls)


BATCH_AT: Final = "batch-at"
BATCH_MARK: Final = "batch-mark"
"""Positions in a store: the offset of the record that its last transaction wrote last, and `_mark` of it."""


def _mark(value: bytes | None, timestamp_ms: int) -> int:
    """A number that no other record at the same offset has."""
    text = b"%d %b" % (timestamp_ms, value or b"")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def noted_batch(entry: Entry, offset: int) -> dict[str, int]:
    """What a store notes of the record that its transaction wrote last."""
    return {BATCH_AT: offset, BATCH_MARK: _mark(entry.value, entry.timestamp_ms)}


def has_lost_batch(log: EventLog, topic: str, partition: int, position: Callable[[str], int]) -> bool:
    """Whether another record is where the last one of a store was. position: of the store, by name."""
    at = position(BATCH_AT)
    record = record_at(log, topic, partition, at) if at else None
    return record is not None and _mark(record.value, record.timestamp_ms) != position(BATCH_MARK)


class TornEvent(NamedTuple):
    """An event of a torn batch, and its offset."""

    event: Envelope
    offset: int


class TornEvents:
    """The events of a torn batch, by stream, until the handler has adopted them."""

    def __init__(self, events: Iterable[TornEvent] = ()) -> None:
        self._by_stream: dict[str, list[TornEvent]] = {}
        for torn in events:
            self._by_stream.setdefault(torn.event.stream, []).append(torn)

    def after(self, stream: str, version: int) -> list[TornEvent]:
        """Those of a stream above `version`, in order."""
        return [torn for torn in self._by_stream.get(stream, ()) if torn.event.sequence > version]

    def start(self, versions: Mapping[str, int], end: int) -> int:
        """The offset of the first that is not adopted when these streams are at `versions`; `end` if all are."""
        offsets = (
            torn.offset
            for stream, events in self._by_stream.items()
            for torn in events
            if torn.event.sequence > versions.get(stream, 0)
        )
        return min(offsets, default=end)

    def forget(self, versions: Mapping[str, int]) -> None:
        """Forget those that these versions include; called after a commit."""
        for stream in self._by_stream.keys() & versions.keys():
            if left := self.after(stream, versions[stream]):
                self._by_stream[stream] = left
            else:
                del self._by_stream[stream]

    def __len__(self) -> int:
        return sum(map(len, self._by_stream.values()))


class TornBatch(NamedTuple):
    """A torn batch.

    start: of the batch; everything before it is whole.
    events: those in the log. receipts: the records of its receipts. streams: those that have snapshots of it.
    """

    start: Ends
    events: list[TornEvent]
    receipts: dict[str, bytes]
    streams: set[str]

    @property
    def untrusted(self) -> set[str]:
        """Keys of receipts whose commands are decided again: those with events, and those of erasures.

        A receipt without events stays as it was sent, and so does an earlier receipt that was sent again.
        """
        found = set[str]()
        for key, value in self.receipts.items():
            with suppress(ValueError):  # not written by a handler
                receipt = Receipt.from_json(value)
                place = receipt.position
                if receipt.type == ERASE if place is None else place.offset >= self.start.events:
                    found.add(key)
        return found

    @property
    def first_versions(self) -> set[str]:
        """Streams whose first event belongs to the batch."""
        ids = {torn.event.id for torn in self.events}
        for key in self.untrusted:
            ids.update(event.id for event in Receipt.from_json(self.receipts[key]).events)
        return {event_id.removesuffix("/1") for event_id in ids if event_id.endswith("/1")}


def torn_batch(log: EventLog, partition: int, last: BatchRecord) -> TornBatch | None:
    """The torn batch at the end of a partition; None if the last one is whole. Call it as the owner.

    last: the latest record of a batch.
    """
    events = _tail(log, topics.EVENTS, partition, last.start.events)
    receipts = _tail(log, topics.RECEIPTS, partition, last.start.receipts)
    # retention deletes receipts
    expired = log.first(topics.RECEIPTS, partition) > last.start.receipts
    whole = _has(events, last.last_event) and (expired or _has(receipts, last.last_receipt))
    start = last.end if whole else last.start
    torn = TornBatch(
        start,
        [event for record in events if record.offset >= start.events and (event := _torn_event(record))],
        {
            receipt.key: receipt.value
            for receipt in receipts
            if receipt.offset >= start.receipts and receipt.value is not None
        },
        {  # a tombstone is an operator's
            record.key
            for record in _tail(log, topics.SNAPSHOTS, partition, start.snapshots)
            if "/" in record.key and record.value is not None
        },
    )
    if whole and not (torn.events or torn.receipts or torn.streams):
        return None
    return torn


def _tail(log: EventLog, topic: str, partition: int, start: int) -> list[Record]:
    # copies of topics have heartbeats in place of what was aborted
    return [record for record in log.read(topic, partition, start) if not is_heartbeat_key(record.key)]


def _has(records: list[Record], key: str) -> bool:
    return not key or any(record.key == key for record in records)


def _torn_event(record: Record) -> TornEvent | None:
    """The event of a record; None of a tombstone, or what no handler wrote."""
    try:
        event = decode(record.value)
    except NotAnEnvelope:
        return None
    return TornEvent(event, record.offset) if record.key == f"{event.stream}/{event.sequence}" else None


def adopted(
    received: ReceivedCommand,
    typed: TypedCommand,
    known: StreamState,
    decision: Decision,
    torn: list[TornEvent],
    *,
    keep: bool,
) -> Decision:
    """The decision on a command, without the events that the log has already.

    decision: on the stream at `known`. torn: the events of the stream that follow, at least one. If these are not what
    the rules decide now, because the code was changed meanwhile, the log is right.
    """
    command_id, stream, aggregate = received.envelope.id, typed.stream, typed.aggregate
    written = list(takewhile(lambda recorded: recorded.event.causation_id == command_id, torn))
    if not written:
        if not decision.events:
            return decision
        logger.error('the commands of events of "%s" from version %d are gone', stream, torn[0].event.sequence)
        return decide(received, typed, _folded(aggregate, known, torn), keep=keep)
    if decision.is_undecided:
        return decision
    offsets = tuple(recorded.offset for recorded in written)
    decided = [decode(entry.value) for entry in decision.events[: len(written)]]
    pairs = zip(decided, (recorded.event for recorded in written), strict=False)
    if len(decided) == len(written) and all(
        one.type == other.type and (aggregate.is_personal or one.data == other.data) for one, other in pairs
    ):
        logger.warning('"%s": %d events of "%s" are in the log already', stream, len(written), command_id)
        return structs.replace(decision, events=decision.events[len(written) :], placed=offsets)
    logger.error('"%s" is decided otherwise now, but its events are in the log: "%s"', command_id, written[0].event.id)
    after = _folded(aggregate, known, written)
    receipt = decided_head(received, "accepted", after.version)
    recorded = tuple(
        b'{"id":%b,"type":%b,"position":"%d:'
        % (msgspec.json.encode(recorded.event.id), msgspec.json.encode(recorded.event.type), received.partition)
        for recorded in written
    )
    return Decision(
        received.key, command_id, received.envelope.type, received.fingerprint, stream, "accepted",
        receipt, (), recorded, after, size_bytes=len(receipt), begins=known.version == 0, sealed=received.sealed,
        placed=offsets,
    )  # fmt: skip


def fold_without_commands(
    log: EventLog, partition: int, registry: CommandRegistry, store: StateStore, torn: TornBatch
) -> dict[str, bytes]:
    """New snapshots of streams with the events whose commands retention has deleted, so that nothing decides them."""
    if log.first(topics.COMMANDS, partition) <= torn.start.command:
        return {}
    commands = log.read(topics.COMMANDS, partition, torn.start.command)
    kept = set[str]()
    for record in commands:
        with suppress(NotAnEnvelope):
            kept.add(decode(record.value).id)
    snapshots = {}
    events = TornEvents(torn.events)
    for stream in {event.event.stream for event in torn.events}:
        aggregate, value = registry.aggregates.get(stream.partition("/")[0]), store.snapshot(stream)
        if aggregate is None or (value is not None and not is_snapshot(value)):
            continue  # it stays torn until its state can be read
        left = events.after(stream, version_in(value or b""))
        if not (lost := list(takewhile(lambda recorded: recorded.event.causation_id not in kept, left))):
            continue
        logger.error('the commands of events of "%s" from version %d are gone', stream, lost[0].event.sequence)
        known = StreamState.of(aggregate, value) if value else StreamState(aggregate.initial, 0)
        after = _folded(aggregate, known, lost)
        snapshots[stream] = write_snapshot(aggregate, after.state, after.version, after.time_us, stream=stream)
    return snapshots


def _folded(aggregate: AnyAggregate, known: StreamState, torn: list[TornEvent]) -> StreamState:
    state, version = fold(aggregate, [recorded.event for recorded in torn], known.state, known.version)
    time_us = max(known.time_us, *(timestamp_us(recorded.event.time) for recorded in torn))
    return StreamState(state, version, known.size_bytes, time_us)
