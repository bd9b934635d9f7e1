"""From commands to the records for them: events, snapshots, receipts, dead letters. No I/O."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec import structs

from headwater.commands.codec import (
    TypedCommand,
    fingerprint_of,
    fingerprint_of_unreadable,
    has_short_names,
    read_command,
)
from headwater.commands.declaring.json_body import canonical
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError, MisplacedCommand, UnreadableSnapshot
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.decision import (
    Decision,
    ReceivedCommand,
    StreamState,
    answered,
    begin_decision,
    clipped,
    decide,
    failure,
    kept,
    note_decision,
    unavailable,
)
from headwater.commands.handling.erasing import ERASE, Erasure, decide_erasure
from headwater.commands.handling.refusals import is_addressed
from headwater.commands.handling.torn_batch import TornEvents, adopted
from headwater.commands.local_state.state import BoundedCache, StateStore
from headwater.commands.owning.running_code import running
from headwater.commands.receipt import (
    KEY_REUSED,
    UNREADABLE,
    UNREADABLE_STATE,
    Receipt,
    ReceiptError,
    is_same,
    key_of,
    reuse_key,
    reused_message,
    sealed_digests,
)
from headwater.eventlog import topics
from headwater.eventlog.envelope import EPOCH, Envelope, decode, format_time, partition_of
from headwater.eventlog.errors import KeysUnavailable, NotAnEnvelope
from headwater.eventlog.letters import Letter, time_of
from headwater.eventlog.limits import MAX_NAMES_BYTES, MAX_RECORD_BYTES
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.ports import Entry, Record

WATCHED_STREAMS = 1_000
LOOKED_UP = 250
"""Commands whose receipts are looked up at once."""
CACHED_STREAMS = 60_000
"""For a whole process, independent of the number of its partitions; a decoded state takes two to three kilobytes."""
CACHED_BYTES = 128 * 1024 * 1024
"""Likewise for a whole process: of the states as JSON. Decoded, a state takes a few times as much."""
LAST_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: Kafka accepts later times, Python does not."""

_Stored = tuple[str, bytes | None]
"""The key of a command's receipt, and the receipt in the store, if it has one."""

logger = logging.getLogger(__name__)


class Handler:
    """Decides the commands of one partition in their order.

    It keeps decoded states. So after a failed transaction a new handler must be made; the store has committed state
    only.
    """

    def __init__(
        self,
        registry: CommandRegistry,
        partition: int,
        partitions: int,
        store: StateStore,
        torn: TornEvents | None = None,
    ) -> None:
        """torn: events of a torn batch, which are adopted when their commands are decided again."""
        self._registry = registry
        self._torn = torn
        self._partition, self._partitions = partition, partitions
        self._store = store
        self._streams = BoundedCache[StreamState](
            max(1, CACHED_STREAMS // partitions), max(MAX_RECORD_BYTES, CACHED_BYTES // partitions)
        )
        self._erasures = 0
        """Those that the vault had noticed when states were last forgotten because of one."""
        self._watched: set[str] = set()
        """Streams with a state that could not be stored; it is stored after each command, to find the faulty one."""

    def decide(self, records: Sequence[Record], now_ms: int) -> Batch:
        """The batch of `records`, consecutive commands, or of as many as fit in one transaction.

        A state is written once per batch, because a large state costs more than its commands. If a state cannot be
        written, the batch is decided again, writing the state of that stream after each command: only the faulty
        command fails.
        """
        if len(self._watched) > WATCHED_STREAMS:
            self._watched.clear()
        if self._registry.personal and (erasures := installed().erasures) != self._erasures:
            self._erasures = erasures
            self._streams.clear()  # the store has states with encrypted values, which are opened again
        while unkept := self._keep(batch := self._decide_all(records, now_ms)):
            logger.warning("deciding %d commands again: one of their states cannot be written", batch.taken)
            self._watched |= unkept
            for stream in batch.changed:
                self._streams.forget(stream)
        self._streams.shrink()
        return batch

    def _decide_all(self, records: Sequence[Record], now_ms: int) -> Batch:
        batch = Batch(self._partition, now_ms)
        for start in range(0, len(records), LOOKED_UP):
            read = [(record, _read_envelope(record)) for record in records[start : start + LOOKED_UP]]
            keys = [key_of(envelope) for _, envelope in read if isinstance(envelope, Envelope)]
            stored = iter(zip(keys, self._store.receipts(keys), strict=True))
            for record, envelope in read:
                if batch.is_full:
                    return batch
                if isinstance(envelope, Envelope):
                    with running("decide", envelope.type, envelope.stream, envelope.id, envelope.traceparent):
                        self._handle(record, envelope, next(stored), batch)
                else:
                    self._add_dead_letter(record, envelope, batch)  # there is nobody to answer
                batch.taken += 1
                batch.next_command = record.offset + 1
        return batch

    def _keep(self, batch: Batch) -> set[str]:
        """Write the states of the batch; returns the streams whose states cannot be written."""
        unkept = set()
        for stream, decision in batch.changed.items():
            snapshot, after = decision.snapshot, decision.after
            try:
                if snapshot is None and after is not None:
                    aggregate = self._registry.aggregates[stream.partition("/")[0]]
                    with running("write the state", aggregate.name, stream, decision.command_id):
                        known, snapshot = kept(aggregate, stream, after)
                    self._streams.put(stream, known, known.size_bytes)
                batch.snapshots[stream] = snapshot
            except BaseException:  # noqa: BLE001 - the validators of a state are a user's, and may raise anything
                unkept.add(stream)
        return unkept

    def _handle(self, record: Record, envelope: Envelope, stored: _Stored, batch: Batch) -> None:
        """Add the answer to a command; if its trace is sampled, its events carry the context of the decision's span."""
        answer = self._erase if envelope.type == ERASE else self._answer
        span, decided, began_ns = begin_decision(envelope), len(batch.decisions), 0
        if span is not None:
            began_ns, envelope = time.perf_counter_ns(), structs.replace(envelope, traceparent=span.traceparent)
        if is_addressed(envelope):
            batch.addressed.append((record, envelope))
        answer(record, envelope, stored, batch)
        if span is not None:
            note_decision(span, batch.decisions[-1] if len(batch.decisions) > decided else None, began_ns)
            batch.traced[record.offset] = span

    def _answer(self, record: Record, envelope: Envelope, stored: _Stored, batch: Batch) -> None:
        """Add the answer to a command of an aggregate; none if it belongs to another partition."""
        typed, error = self._read(envelope, record, batch)
        if typed is not None:
            fingerprint = fingerprint_of(envelope.type, typed.body, envelope.expected_version)
        elif error is not None:
            fingerprint = fingerprint_of_unreadable(envelope, record.value or b"")
        else:
            return  # another partition must answer it
        received = self._received(envelope, fingerprint, stored, batch)
        # also of a command that cannot be opened now: it may have been decided before
        if isinstance(error, KeysUnavailable) or (typed is not None and typed.command.sealed_fields is not None):
            body = canonical(envelope.data)[0] if typed is None else typed.body
            digests = sealed_digests(envelope.type, body, envelope.expected_version)
            received = structs.replace(received, sealed=digests)
        if _is_answered(received, stored[1], batch):
            return
        if typed is not None:
            self._decide(received, typed, batch)
        elif isinstance(error, KeysUnavailable):
            batch.add(unavailable(received, 0, error))
        else:
            batch.add(answered(received, "failed", 0, error))

    def _received(self, envelope: Envelope, fingerprint: str, stored: _Stored, batch: Batch) -> ReceivedCommand:
        return ReceivedCommand(
            envelope, format_time(envelope.time), fingerprint, self._partition, batch.recorded_time, stored[0]
        )

    def _erase(self, record: Record, envelope: Envelope, stored: _Stored, batch: Batch) -> None:
        """Add the answer to a request to erase events of a stream."""
        stream = envelope.stream
        try:
            self._check_partition(stream)
            erasure = Erasure.of(envelope)
        except (NotAnEnvelope, MisplacedCommand) as error:
            self._add_dead_letter(record, error, batch)
            return
        fingerprint = fingerprint_of_unreadable(envelope, record.value or b"")
        received = self._received(envelope, fingerprint, stored, batch)
        if _is_answered(received, stored[1], batch):
            return
        aggregate = self._registry.aggregates.get(stream.partition("/")[0])
        state = self._streams.get(stream)
        snapshot = self._store.snapshot(stream) if state is None else None
        if state is None and stream in batch.changed:
            state = batch.changed[stream].after  # an unknown aggregate's, whose states are not kept
        decision = decide_erasure(received, erasure, aggregate, state, snapshot, batch.now_ms)
        batch.add(decision)
        if decision.after is not None:
            batch.erased.append(stream)
            self._streams.forget(stream)
            if aggregate is not None:
                self._streams.put(stream, decision.after, decision.after.size_bytes)

    def _check_partition(self, stream: str) -> None:
        if partition_of(stream, self._partitions) != self._partition:
            raise MisplacedCommand(f'"{stream}" does not belong to partition {self._partition}')

    def _read(
        self, envelope: Envelope, record: Record, batch: Batch
    ) -> tuple[TypedCommand | None, ReceiptError | KeysUnavailable | None]:
        """The typed command, or why there is none; neither if it belongs to another partition."""
        try:
            self._check_partition(envelope.stream)
            typed = read_command(self._registry.command(envelope.type), envelope.data, envelope.time, is_sealed=True)
            if typed.stream != envelope.stream:
                raise MisplacedCommand(f'the subject is "{envelope.stream}", but the body belongs to "{typed.stream}"')
            if envelope.time < EPOCH:
                raise NotAnEnvelope(f'"time" is {envelope.time}: Kafka cannot store a time before 1970')
            return typed, None
        except MisplacedCommand as error:
            self._add_dead_letter(record, error, batch)
            return None, None
        except (NotAnEnvelope, CommandError) as error:
            self._add_dead_letter(record, error, batch)
            return None, ReceiptError(UNREADABLE, clipped(str(error)))
        except KeysUnavailable as error:
            return None, error
        except BaseException as error:  # noqa: BLE001 - the validators of a command are a user's
            is_personal = envelope.type.partition(".")[0] in self._registry.personal
            return None, failure(envelope, error, is_personal=is_personal)

    def _decide(self, received: ReceivedCommand, typed: TypedCommand, batch: Batch) -> None:
        """Decide a new command and add the decision."""
        stream, aggregate = typed.stream, typed.aggregate
        state = self._streams.get(stream)
        if is_first := state is None:
            snapshot = self._store.snapshot(stream)
            try:
                state = StreamState(aggregate.initial, 0) if snapshot is None else StreamState.of(aggregate, snapshot)
            except UnreadableSnapshot:
                message = (
                    f'the events of "{stream}" cannot be folded, see the log of the handler\'s start; until this is '
                    "fixed and a handler was started again, its commands fail: then retry with a new command id"
                )
                batch.add(answered(received, "failed", 0, ReceiptError(UNREADABLE_STATE, clipped(message))))
                return
            except KeysUnavailable as error:
                batch.add(unavailable(received, 0, error))
                return
            except BaseException as error:  # noqa: BLE001 - the validators of a state are a user's
                reason = failure(received.envelope, error, is_personal=aggregate.is_personal)
                batch.add(answered(received, "failed", 0, reason))
                return
            self._streams.put(stream, state, state.size_bytes)
        keep = stream in self._watched
        decision = decide(received, typed, state, keep=keep)
        if self._torn and (torn := self._torn.after(stream, state.version)):
            decision = adopted(received, typed, state, decision, torn, keep=keep)
        batch.add(decision)
        if decision.after is not None:
            self._streams.put(stream, decision.after, decision.after.size_bytes)
        elif is_first:
            batch.size_bytes += state.size_bytes  # it fills the memory as well

    def _add_dead_letter(self, record: Record, error: Exception, batch: Batch) -> None:
        batch.add_dead_letter(dead_letter(record, str(error), batch.now_ms))
        logger.warning(
            "%s/%d/%d is a dead letter: %s", record.topic, record.partition, record.offset, clipped(str(error)),
            extra={"partition": record.partition, "offset": record.offset, "stream": record.key[:200]},
        )  # fmt: skip


def _read_envelope(record: Record) -> Envelope | NotAnEnvelope:
    """The envelope of a command, or why it has none."""
    try:
        envelope = decode(record.value)
    except NotAnEnvelope as unreadable:
        return unreadable
    if not has_short_names(envelope):
        return NotAnEnvelope(f"id, type and subject together have more than {MAX_NAMES_BYTES} bytes")
    return envelope


def _is_answered(received: ReceivedCommand, stored: bytes | None, batch: Batch) -> bool:
    """Answer a command whose id was answered before; returns whether it was.

    stored: its receipt in the store.
    """
    key, fingerprint = received.key, received.fingerprint
    pending = batch.decision(key)
    if pending is None and stored is None:
        return False
    try:
        first: Decision | Receipt = pending or Receipt.from_json(stored or b"")
    except ValueError as unreadable:  # not written by a handler, so it is not known what was done
        reason = failure(received.envelope, unreadable)
        batch.add(answered(received, "failed", 0, reason, key=reuse_key(key, fingerprint)))
        return True
    if first.is_undecided:
        return False
    if not is_same(first.fingerprint, first.sealed, fingerprint, received.sealed):
        # under another key, because the first receipt must stay the latest record of its key
        message = reused_message(received.envelope.id, received.envelope.stream)
        error = ReceiptError(KEY_REUSED, clipped(message))
        batch.add(answered(received, "failed", 0, error, key=reuse_key(key, fingerprint)))
    elif pending is None and stored is not None and key not in batch.repeated:
        batch.add_repeated(key, stored)
    return True


def dead_letter(record: Record, reason: str, now_ms: int, *, reader: str = "") -> Entry:
    """The dead letter of a record that cannot be read.

    reader: who could not read it, if several read the same record.
    """
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    time = time_of(min(max(record.timestamp_ms, 0), LAST_TIME_MS))
    letter = Letter(reason, time, record.key.encode(errors="surrogateescape"), record.value)
    key = f"{record.topic}/{record.partition}/{record.offset}" + (f"/{reader}" if reader else "")
    return Entry(topics.DEAD_LETTERS, key, letter.to_json(**place), now_ms)
