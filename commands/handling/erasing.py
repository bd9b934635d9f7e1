"""Erasing events of a stream: what `replay erase` asks of the owner of the partition, and the owner's decision.

The request is a record of `commands` whose type no aggregate can have, so neither the API nor an outbox nor a process
can send it. The owner appends tombstones of events, a snapshot without them, and a receipt in one transaction. The
snapshot keeps the version of the stream, so no id of an event is used again. No I/O.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.commands.codec import opened_state, snapshot_time_us, write_snapshot
from headwater.commands.declaring.registry import AnyAggregate
from headwater.commands.handling.decision import (
    MAX_EVENTS,
    Decision,
    ReceivedCommand,
    StreamState,
    answered,
    clipped,
    decided_head,
    kept,
    unavailable,
)
from headwater.commands.handling.refold import is_snapshot, version_in
from headwater.commands.receipt import WRONG_VERSION, ReceiptError
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.errors import KeysUnavailable, NotAnEnvelope
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.ports import Entry

ERASE: Final = "headwater.erase"
"""Type of the request; names of aggregates cannot begin with `headwater`."""
MAX_ERASED: Final = MAX_EVENTS
"""Events of one request, whose tombstones are one transaction."""
NO_STREAM: Final = "no_such_stream"
OTHER_STATE: Final = "other_state"
NOT_ERASABLE: Final = "not_erasable"


class Erasure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `data` of a request to erase the events from version `first` to `last`, both included.

    version: the last version of the stream that the log has; it counts if the owner has no readable state.
    state: of the stream without them, as the text of its JSON with ciphertexts; None if all its events are erased:
    then it is the state before the first event. fields: the shape of this state, which must be that of the owner.
    """

    first: int
    last: int
    version: int
    whole: bool = False
    state: str | None = None
    fields: str | None = None

    def envelope(self, **more: Any) -> Envelope:
        """The request; more: `id`, `stream`, `time`, and `expected_version` if there is a state."""
        return Envelope(type=ERASE, data=msgspec.to_builtins(self), **more)

    @classmethod
    def of(cls, envelope: Envelope) -> Erasure:
        """Read a request; raises NotAnEnvelope."""
        try:
            read = msgspec.convert(envelope.data, cls)
        except msgspec.ValidationError as error:
            raise NotAnEnvelope(f"not a request to erase events: {error}") from error
        if not 0 < read.first <= read.last < read.first + MAX_ERASED:
            raise NotAnEnvelope(f"it erases the versions {read.first} to {read.last}: at most {MAX_ERASED}, from 1 on")
        return read


def decide_erasure(
    received: ReceivedCommand,
    erasure: Erasure,
    aggregate: AnyAggregate | None,
    known: StreamState | None,
    snapshot: bytes | None,
    now_ms: int,
) -> Decision:
    """The decision on a request.

    aggregate: None if it is not declared. known: the stream's state, if it is in memory; else snapshot is the store's
    value, None if the stream does not exist.
    """
    stream, expected = received.envelope.stream, received.envelope.expected_version
    if snapshot is None and (known is None or not known.version):
        return answered(received, "rejected", 0, ReceiptError(NO_STREAM, clipped(f'there is no stream "{stream}"')))
    version = known.version if known is not None else version_in(snapshot or b"")
    if known is None and not is_snapshot(snapshot):  # it cannot be folded, so it has got no event since
        version = max(version, erasure.version)
    if expected is not None and expected != version:
        message = clipped(f'"{stream}" is at version {version}, not {expected}: it got events meanwhile')
        return answered(received, "conflict", version, ReceiptError(WRONG_VERSION, message, expected, version))
    last = min(erasure.last, version)
    try:
        time_us = known.time_us if known is not None else snapshot_time_us(snapshot or b"")
    except ValueError:  # its events cannot be folded now
        time_us = now_ms * 1_000
    if aggregate is not None and not erasure.whole and erasure.fields != aggregate.shape:
        message = "the handlers run other code of the aggregate than this command: use the same code, and try again"
        return answered(received, "failed", version, ReceiptError(OTHER_STATE, message))
    try:
        after, written = _after(aggregate, stream, erasure, version, time_us)
    except KeysUnavailable as error:
        return unavailable(received, version, error)
    except Exception as error:  # noqa: BLE001 - the validators of a state are a user's
        text = error_text(error, is_personal=aggregate is not None and aggregate.is_personal)
        reason = ReceiptError(NOT_ERASABLE, clipped(f"the state without the event is not valid: {text}"))
        return answered(received, "failed", version, reason)
    tombstones = tuple(
        Entry(topics.EVENTS, f"{stream}/{number}", None, now_ms) for number in range(erasure.first, last + 1)
    )
    envelope = received.envelope
    receipt = decided_head(received, "accepted", version)
    size_bytes = len(receipt) + len(written) + sum(len(tombstone.key) for tombstone in tombstones)
    return Decision(
        received.key, envelope.id, envelope.type, received.fingerprint, stream, "accepted", receipt,
        tombstones, after=after, snapshot=written, size_bytes=size_bytes,
    )  # fmt: skip


def _after(
    aggregate: AnyAggregate | None, stream: str, erasure: Erasure, version: int, time_us: int
) -> tuple[StreamState, bytes]:
    """The stream after it, and its snapshot; an unknown aggregate's is folded from the events once it is declared.

    time_us: of its last event, before which none may come.
    """
    if aggregate is None:
        written = b'{"version":%d,"shape":"","time":%d,"state":{}}' % (version, time_us)
        return StreamState(None, version, time_us=time_us), written
    if erasure.whole:
        written = write_snapshot(aggregate, aggregate.initial, version, time_us, stream=stream)
        return StreamState(aggregate.initial, version, time_us=time_us), written
    state = type(aggregate.initial).model_validate_json(opened_state(aggregate, (erasure.state or "").encode()))
    return kept(aggregate, stream, StreamState(state, version, time_us=time_us))
