"""The answer to a command, as it is stored in `receipts`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec
import orjson

from commands.errors import DecideFailed, IdempotencyKeyReused, Rejected, UnreadableCommand, WrongVersion
from eventlog.envelope import Position

Outcome = Literal["accepted", "rejected", "conflict", "failed"]

WRONG_VERSION = "wrong_version"
KEY_REUSED = "idempotency_key_reused"
INTERNAL_ERROR = "internal_error"
UNREADABLE = "unreadable_command"
UNREADABLE_STATE = "unreadable_state"
STATE_TOO_LARGE = "state_too_large"
EVENT_TOO_LARGE = "event_too_large"
TOO_MANY_EVENTS = "too_many_events"
ERROR_ID = re.compile(r"[0-9a-f]{16}\Z")
"""At the end of the message of a command that failed: the handler's log has the error under it."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of the command: its id (`listing/L1/7`), type, and position in the log."""

    id: str
    type: str
    position: Position


@dataclass(frozen=True, slots=True)
class ReceiptError:
    """Why a command was refused.

    code: stable, for programs; the code of a rule, or one of this module's constants.
    expected, actual: versions, if the outcome is `conflict`.
    """

    code: str
    message: str
    expected: int | None = None
    actual: int | None = None


class _Members(msgspec.Struct, gc=False):
    """What every receipt has in JSON (see Receipt), in this order."""

    command_id: str
    type: str
    stream: str
    outcome: Outcome
    version: int
    fingerprint: str
    time: str


class _Head(_Members, gc=False):
    """A receipt without its events."""

    error: ReceiptError | msgspec.UnsetType


class _Event(msgspec.Struct, gc=False):
    """A RecordedEvent."""

    id: str
    type: str
    position: str


class _Document(_Members, gc=False):
    """A whole receipt; members that are not listed are ignored."""

    events: list[_Event]
    error: ReceiptError | None = None


_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(_Document).decode


@dataclass(frozen=True, slots=True)
class Receipt:
    """The recorded answer to one command.

    outcome: `accepted` (even if nothing had to change), `rejected` by a rule, `conflict` with the expected version, or
    `failed` (not because of a rule: see `error.code`).
    version: of the stream after the command. fingerprint: digest of the command. time: of the command, RFC 3339.
    """

    command_id: str
    type: str
    stream: str
    outcome: Outcome
    version: int
    fingerprint: str
    time: str
    events: tuple[RecordedEvent, ...] = ()
    error: ReceiptError | None = None

    @property
    def position(self) -> Position | None:
        """Position of the last event, to wait for with `after=`; None if there is none."""
        return self.events[-1].position if self.events else None

    def to_json(self) -> bytes:
        """The record's value."""
        head = receipt_head(
            self.command_id,
            self.type,
            self.stream,
            self.outcome,
            self.version,
            self.fingerprint,
            self.time,
            self.error,
        )
        quoted = (
            orjson.dumps({"id": e.id, "type": e.type, "position": f"{e.position.partition}:"}) for e in self.events
        )
        return receipt_json(head, [each[:-2] for each in quoted], [e.position.offset for e in self.events])

    @classmethod
    def from_json(cls, value: bytes) -> Receipt:
        """Read a record's value; raises ValueError if it is not a receipt."""
        read = _read(value)
        return cls(
            read.command_id,
            read.type,
            read.stream,
            read.outcome,
            read.version,
            read.fingerprint,
            read.time,
            tuple([RecordedEvent(each.id, each.type, Position.parse(each.position)) for each in read.events]),
            read.error,
        )


def receipt_head(
    command_id: str,
    type: str,
    stream: str,
    outcome: Outcome,
    version: int,
    fingerprint: str,
    time: str,
    error: ReceiptError | None,
) -> bytes:
    """A receipt as JSON, up to its events (see Receipt)."""
    written = _write(_Head(command_id, type, stream, outcome, version, fingerprint, time, error or msgspec.UNSET))
    return written[:-1] + b',"events":['


def receipt_json(head: bytes, recorded: Iterable[bytes], offsets: Iterable[int]) -> bytes:
    """The value of a receipt's record.

    head: see receipt_head. recorded: for each event, `{"id":…,"type":…,"position":"<partition>:` as JSON. offsets: of
    the events.
    """
    events = []
    for event, offset in zip(recorded, offsets, strict=True):  # a comprehension takes longer: there is mostly one
        events.append(b'%b%d"}' % (event, offset))
    return head + b",".join(events) + b"]}"


def reuse_key(command_id: str, fingerprint: str) -> str:
    """Record key of the receipt for a reused command id: not the id itself, so that its first receipt stays."""
    return f"{command_id}#{fingerprint}"


def raise_refusal(receipt: Receipt) -> None:
    """Return if the command was accepted; else raise the error of the receipt.

    Raises Rejected, WrongVersion, IdempotencyKeyReused, UnreadableCommand or DecideFailed.
    """
    if receipt.outcome == "accepted":
        return
    error = receipt.error or ReceiptError("unknown", "the receipt has no error message")
    if receipt.outcome == "rejected":
        raise Rejected(error.code, error.message)
    if receipt.outcome == "conflict":
        actual = receipt.version if error.actual is None else error.actual
        raise WrongVersion(receipt.stream, error.expected or 0, actual)
    if error.code == KEY_REUSED:
        raise IdempotencyKeyReused(receipt.command_id)
    if error.code == UNREADABLE:
        raise UnreadableCommand(receipt.command_id, error.message)
    found = ERROR_ID.search(error.message)
    raise DecideFailed(receipt.command_id, error.message, found and found[0])
