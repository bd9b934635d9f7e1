"""From commands to what is appended for them: events, snapshots, receipts, dead letters. No I/O."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from commands.aggregate import Event
from commands.codec import TypedCommand, fingerprint, read_command, read_snapshot, write_snapshot
from commands.errors import (
    BadDecision,
    CommandError,
    LocalStateError,
    MisplacedCommand,
    Rejected,
    WrongVersion,
)
from commands.receipt import (
    INTERNAL_ERROR,
    KEY_REUSED,
    UNREADABLE,
    WRONG_VERSION,
    Outcome,
    Receipt,
    ReceiptError,
    receipt_json,
    reuse_key,
)
from commands.registry import AnyAggregate, CommandRegistry
from commands.state import StateStore
from eventlog import topics
from eventlog.envelope import Envelope, decode, encode, format_time, partition_of, timestamp_ms
from eventlog.errors import NotAnEnvelope
from eventlog.letters import Letter, time_of
from eventlog.ports import Entry, Record

CACHED_STREAMS = 60_000
"""Of a whole process, however many partitions it owns; a decoded state takes two to three kilobytes."""
MAX_EVENT_BYTES = topics.MAX_RECORD_BYTES - 64 * 1024
"""Kafka counts a record's key and framing as well."""

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """A receipt whose events have no offsets yet: they are `made` events of the batch, from number `first` on."""

    command_id: str
    type: str
    stream: str
    outcome: Outcome
    version: int
    fingerprint: str
    time: str
    error: ReceiptError | None = None
    first: int = 0
    made: int = 0


@dataclass(slots=True)
class Batch:
    """What one transaction appends for a run of commands.

    Append `entries`, which start with all events; then `receipts(offsets of the entries)`; then commit `next_command`.
    """

    partition: int
    now_ms: int
    next_command: int | None = None
    events: list[Entry] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    dead_letters: list[Entry] = field(default_factory=list)
    snapshots: dict[str, bytes | None] = field(default_factory=dict)
    answers: dict[str, _Answer] = field(default_factory=dict)
    repeated: dict[str, bytes] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        """Everything but the receipts, in the order in which it is appended."""
        snapshots = [Entry(topics.SNAPSHOTS, stream, value, self.now_ms) for stream, value in self.snapshots.items()]
        return [*self.events, *snapshots, *self.dead_letters]

    def receipts(self, offsets: Sequence[int]) -> dict[str, bytes | None]:
        """The receipts by record key, given the offset of each of `entries`."""
        written: dict[str, bytes | None] = dict(self.repeated)
        events, types, partition = self.events, self.types, self.partition
        for key, answer in self.answers.items():
            recorded = [
                {"id": events[i].key, "type": types[i], "position": f"{partition}:{offsets[i]}"}
                for i in range(answer.first, answer.first + answer.made)
            ]
            written[key] = receipt_json(*answer[:8], recorded)
        return written


class Handler:
    """Decides the commands of one partition, in their order.

    It keeps decoded states, so after a transaction that failed a new one must be made; the store holds committed
    state only.
    """

    def __init__(self, registry: CommandRegistry, partition: int, partitions: int, store: StateStore) -> None:
        self._registry = registry
        self._partition, self._partitions = partition, partitions
        self._store = store
        self._cached = max(1, CACHED_STREAMS // partitions)
        self._states: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def decide(self, records: Sequence[Record], now_ms: int) -> Batch:
        """The batch of all `records`, which follow each other in `commands`."""
        batch = Batch(self._partition, now_ms)
        touched: dict[str, None] = {}
        for record in records:
            self._handle(record, batch, touched)
            batch.next_command = record.offset + 1
        for stream in touched:
            aggregate = self._registry.aggregates[stream.partition("/")[0]]
            batch.snapshots[stream] = write_snapshot(aggregate, *self._states[stream])
        while len(self._states) > self._cached:
            self._states.popitem(last=False)
        return batch

    def _handle(self, record: Record, batch: Batch, touched: dict[str, None]) -> None:
        envelope = None
        try:
            envelope = decode(record.value)
            typed = self._read(envelope)
        except (NotAnEnvelope, CommandError) as error:
            batch.dead_letters.append(dead_letter(record, str(error), batch.now_ms))
            logger.warning("%s/%d/%d is a dead letter: %s", record.topic, record.partition, record.offset, error)
            if envelope is None or isinstance(error, MisplacedCommand):
                return  # nobody to answer, or it is not for this partition to answer
            asked = fingerprint(envelope.type, orjson.dumps(envelope.data, option=orjson.OPT_SORT_KEYS), None)
            if not self._answered(envelope, envelope.stream, asked, batch):
                self._answer(batch, envelope, "failed", 0, asked, error=ReceiptError(UNREADABLE, str(error)))
            return
        asked = fingerprint(envelope.type, typed.body, envelope.expected_version)
        if not self._answered(envelope, typed.stream, asked, batch):
            self._decide(envelope, typed, asked, batch, touched)

    def _read(self, envelope: Envelope) -> TypedCommand:
        """The typed command; raises where it is none, or not one of this partition's."""
        if partition_of(envelope.stream, self._partitions) != self._partition:
            raise MisplacedCommand(f'"{envelope.stream}" does not belong to partition {self._partition}')
        typed = read_command(self._registry.command(envelope.type), envelope.data)
        if typed.stream != envelope.stream:
            raise MisplacedCommand(f'the subject is "{envelope.stream}", and the body is about "{typed.stream}"')
        if timestamp_ms(envelope.time) < 0:
            raise NotAnEnvelope(f'"time" is {envelope.time}, and Kafka keeps none before 1970')
        return typed

    def _answered(self, envelope: Envelope, stream: str, asked: str, batch: Batch) -> bool:
        """Whether the command's id was answered before; then the answer is given again, or the id is refused."""
        command_id = envelope.id
        pending = batch.answers.get(command_id)
        stored = None if pending else batch.repeated.get(command_id) or self._store.receipt(command_id)
        if pending is not None:
            first_type, first_asked = pending.type, pending.fingerprint
        elif stored is not None:
            first = Receipt.from_json(stored)
            first_type, first_asked = first.type, first.fingerprint
        else:
            return False
        if first_asked != asked:
            # under a key of its own, because the record of the first receipt must stay the latest of its key
            message = f'the command id "{command_id}" belongs to another "{first_type}": use a new one'
            refused = _Answer(
                command_id, envelope.type, stream, "failed", 0, asked, format_time(envelope.time),
                ReceiptError(KEY_REUSED, message),
            )  # fmt: skip
            batch.answers[reuse_key(command_id, asked)] = refused
        elif stored is not None:
            batch.repeated[command_id] = stored
        return True

    def _decide(
        self, envelope: Envelope, typed: TypedCommand, asked: str, batch: Batch, touched: dict[str, None]
    ) -> None:
        stream, aggregate = typed.stream, typed.aggregate
        version = 0
        try:
            state, version = self._state(aggregate, stream)
            if envelope.expected_version is not None and envelope.expected_version != version:
                raise WrongVersion(stream, envelope.expected_version, version)
            events = aggregate.decide(typed.command, state)
            entries = self._entries(events, envelope, typed, version)
            for event in events:
                state = aggregate.evolve(state, event)
        except Rejected as rejected:
            error = ReceiptError(rejected.code, rejected.message)
            self._answer(batch, envelope, "rejected", version, asked, error=error)
        except WrongVersion as wrong:
            error = ReceiptError(WRONG_VERSION, str(wrong), wrong.expected, wrong.actual)
            self._answer(batch, envelope, "conflict", version, asked, error=error)
        except LocalStateError:  # no fault of the command's, so it is not answered
            raise
        except Exception:  # a user's rules may raise anything; the partition must go on
            error_id = secrets.token_hex(8)
            logger.exception('error %s: "%s" of "%s" failed', error_id, envelope.type, stream)
            error = ReceiptError(INTERNAL_ERROR, f"the command failed, which is no fault of yours: error {error_id}")
            self._answer(batch, envelope, "failed", version, asked, error=error)
        else:
            first = len(batch.events)
            if entries:
                batch.events += entries
                batch.types += [event.type for event in events]
                version += len(entries)
                self._states[stream] = (state, version)
                touched[stream] = None
            self._answer(batch, envelope, "accepted", version, asked, first=first, made=len(entries))

    def _state(self, aggregate: AnyAggregate, stream: str) -> tuple[Any, int]:
        known = self._states.get(stream)
        if known is None:
            snapshot = self._store.snapshot(stream)
            known = (aggregate.initial, 0) if snapshot is None else read_snapshot(aggregate, snapshot)
            self._states[stream] = known
        else:
            self._states.move_to_end(stream)
        return known

    def _entries(self, events: Sequence[Event], envelope: Envelope, typed: TypedCommand, version: int) -> list[Entry]:
        """The records of what was decided; raises BadDecision where it is not of this stream."""
        aggregate, entries = typed.aggregate, []
        for sequence, event in enumerate(events, version + 1):
            if aggregate.events.get(event.type) is not type(event):
                raise BadDecision(f'"{event.type}" is no event that "evolve" of "{aggregate.name}" takes')
            if str(getattr(event, aggregate.id_field)) != typed.aggregate_id:
                raise BadDecision(f'"{event.type}" is about another "{aggregate.name}" than "{typed.stream}"')
            recorded = Envelope(
                id=f"{typed.stream}/{sequence}",
                type=event.type,
                stream=typed.stream,
                time=envelope.time,
                data={},
                source=f"/headwater/{aggregate.name}",
                data_version=event.version,
                sequence=sequence,
                correlation_id=envelope.correlation_id or envelope.id,
                causation_id=envelope.id,
                traceparent=envelope.traceparent,
            )
            value = encode(recorded, event.__pydantic_serializer__.to_json(event))
            if len(value) > MAX_EVENT_BYTES:
                raise BadDecision(f'"{recorded.id}" has {len(value)} bytes, and {MAX_EVENT_BYTES} are allowed')
            entries.append(Entry(topics.EVENTS, recorded.id, value, timestamp_ms(envelope.time)))
        return entries

    def _answer(
        self,
        batch: Batch,
        envelope: Envelope,
        outcome: Outcome,
        version: int,
        asked: str,
        *,
        error: ReceiptError | None = None,
        first: int = 0,
        made: int = 0,
    ) -> None:
        time = format_time(envelope.time)
        batch.answers[envelope.id] = _Answer(
            envelope.id, envelope.type, envelope.stream, outcome, version, asked, time, error, first, made
        )


def dead_letter(record: Record, reason: str, now_ms: int, *, asked_by: str = "") -> Entry:
    """The dead letter of a record that cannot be read.

    asked_by: who could not read it, where others read the same record and may find fault with it as well.
    """
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    letter = Letter(reason, time_of(record.timestamp_ms), record.key.encode(errors="surrogateescape"), record.value)
    key = f"{record.topic}/{record.partition}/{record.offset}" + (f"/{asked_by}" if asked_by else "")
    return Entry(topics.DEAD_LETTERS, key, letter.to_json(**place), now_ms)
