"""The answer to a command, as it is stored in `receipts`, and whether another command has the same content."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import orjson

from headwater.commands.codec import fingerprint_of
from headwater.commands.errors import DecideFailed, IdempotencyKeyReused, Rejected, UnreadableCommand, WrongVersion
from headwater.eventlog.envelope import CLIENT, OUTBOX, PROCESS, Envelope, Position
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.sealed_text import SealedText, changed_texts

Outcome = Literal["accepted", "rejected", "conflict", "failed"]

WRONG_VERSION = "wrong_version"
KEY_REUSED = "idempotency_key_reused"
INTERNAL_ERROR = "internal_error"
UNREADABLE = "unreadable_command"
UNREADABLE_STATE = "unreadable_state"
STATE_TOO_LARGE = "state_too_large"
EVENT_TOO_LARGE = "event_too_large"
TOO_MANY_EVENTS = "too_many_events"
KEYS_UNAVAILABLE = "keys_unavailable"
"""The keys of persons could not be read, so nothing was decided: the same command may be sent again, with its id."""
ERROR_ID = re.compile(r"[0-9a-f]{16}\Z")
"""At the end of the message of a command that failed: the handler's log has the error under it."""

ORIGINS: Final = (CLIENT, PROCESS, OUTBOX)
"""Who may have chosen the id of a command."""


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


class ReceiptHead(msgspec.Struct, omit_defaults=True, gc=False):
    """A receipt without its events, see Receipt."""

    command_id: str
    type: str
    stream: str
    outcome: Outcome
    version: int
    fingerprint: str
    time: str
    origin: str
    error: ReceiptError | None = None
    actor: str | None = None
    sealed: str = ""

    def to_json(self) -> bytes:
        """The receipt as JSON, up to its events."""
        return _write(self)[:-1] + b',"events":['


class _Event(msgspec.Struct, gc=False):
    """A RecordedEvent."""

    id: str
    type: str
    position: str


class _Document(ReceiptHead, kw_only=True, gc=False):
    """A whole receipt; members that are not listed are ignored."""

    events: list[_Event]


_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(_Document).decode


@dataclass(frozen=True, slots=True)
class Receipt:
    """The recorded answer to one command.

    outcome: `accepted` (even if nothing had to change), `rejected` by a rule, `conflict` with the expected version, or
    `failed` (not because of a rule: see `error.code`).
    version: of the stream after the command. fingerprint: digest of the command. time: of the command, RFC 3339.
    origin: who chose the id: `client`, `process` or `outbox`. actor: who caused the command; None if that is not known.
    sealed: see `sealed_digests`; empty if the command has no personal values.
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
    origin: str = CLIENT
    actor: str | None = None
    sealed: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether its command is decided if it comes again, because the keys of persons could not be read."""
        return self.error is not None and self.error.code == KEYS_UNAVAILABLE and self.outcome == "failed"

    @property
    def position(self) -> Position | None:
        """Position of the last event, to wait for with `after=`; None if there is none."""
        return self.events[-1].position if self.events else None

    def to_json(self) -> bytes:
        """The record's value."""
        return _write(
            _Document(
                self.command_id, self.type, self.stream, self.outcome, self.version, self.fingerprint, self.time,
                self.origin, self.error, self.actor, self.sealed,
                events=[_Event(event.id, event.type, str(event.position)) for event in self.events],
            )
        )  # fmt: skip

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
            tuple([RecordedEvent(event.id, event.type, Position.parse(event.position)) for event in read.events]),
            read.error,
            read.origin,
            read.actor,
            read.sealed,
        )


def receipt_json(head: bytes, recorded: Iterable[bytes], offsets: Iterable[int]) -> bytes:
    """The value of a receipt's record.

    head: see ReceiptHead. recorded: for each event, `{"id":…,"type":…,"position":"<partition>:` as JSON. offsets: of
    the events.
    """
    events = []
    for event, offset in zip(recorded, offsets, strict=True):  # a comprehension takes longer: there is mostly one
        events.append(b'%b%d"}' % (event, offset))
    return head + b",".join(events) + b"]}"


def receipt_key(stream: str, origin: str, command_id: str) -> str:
    """Record key of a command's receipt: `["listing/L1","client","c-1"]`.

    An id belongs to one stream and one origin, so that no client can take the id of a process's command.
    """
    return orjson.dumps((stream, origin, command_id)).decode()


def key_of(command: Envelope) -> str:
    """Record key of the receipt of a command; one without an origin is a client's."""
    return receipt_key(command.stream, command.origin or CLIENT, command.id)


def reuse_key(key: str, fingerprint: str) -> str:
    """Record key of the receipt that refuses a reused command id; key: of the first receipt, which so stays."""
    return f"{key}#{fingerprint}"


def reused_message(command_id: str, stream: str) -> str:
    """Why a command is refused whose id another command of its stream has."""
    return f'the command id "{command_id}" was used for another command of "{stream}": use a new one'


def raise_refusal(receipt: Receipt) -> None:
    """Return if the command was accepted; else raise the error of the receipt.

    Raises Rejected, WrongVersion, IdempotencyKeyReused, UnreadableCommand, KeysUnavailable or DecideFailed.
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
    if receipt.is_undecided:
        raise KeysUnavailable("the handler could not read them")
    if error.code == UNREADABLE:
        raise UnreadableCommand(receipt.command_id, error.message)
    id_match = ERROR_ID.search(error.message)
    raise DecideFailed(receipt.command_id, error.message, id_match and id_match[0])


MAX_KEYS: Final = 16
"""Of one command in its receipt; a command with more persons has no digests."""
_DIGEST_BYTES: Final = 8


# A command that is sent again after the erasure of a person is encrypted with a new key, so its fingerprint is another
# one. Its receipt therefore has a digest of the plaintext, and one of the ciphertexts of each key. After an erasure,
# the texts of that key cannot be compared any more, and all else can. A digest of ciphertexts says no more than the
# texts, which are in the log: without the key, nobody can make the text of a value that they guess.


def sealed_digests(command_type: str, body: bytes, expected_version: int | None) -> str:
    """The digests of a canonical body: `<what is in plaintext> <key id>:<its texts> …`; empty if nothing is sealed."""
    texts = defaultdict[str, list[str]](list)
    places, are_left = 0, False

    def place(text: str) -> str:
        nonlocal places, are_left
        places += 1
        try:
            parsed = SealedText.parse(text)
        except ValueError:  # somebody's own text
            return text
        if parsed.sealed:
            texts[parsed.key_id].append(f"{places} {text}")
        else:  # without a value that could be another one
            are_left = True
        return "sealed"

    clear = orjson.dumps(changed_texts(orjson.loads(body), place))
    if not (texts or are_left) or len(texts) > MAX_KEYS:
        return ""
    keys = []
    for key_id, of_key in sorted(texts.items()):
        digest = hashlib.blake2b("\n".join(of_key).encode(), digest_size=_DIGEST_BYTES).hexdigest()
        keys.append(f"{key_id}:{digest}")
    return " ".join([fingerprint_of(command_type, clear, expected_version), *keys])


def is_same(first: str, first_digests: str, fingerprint: str, digests: str) -> bool:
    """Whether two commands with these fingerprints and digests are the same, as far as keys that are left tell.

    The keys of a person change only if the person is erased.
    """
    if first == fingerprint:
        return True
    if not first_digests or not digests:
        return False
    (first_clear, first_keys), (clear, keys) = _parsed(first_digests), _parsed(digests)
    is_rekeyed = any(key not in keys for key in first_keys)
    both = first_keys.keys() & keys.keys()
    return first_clear == clear and is_rekeyed and all(first_keys[field] == keys[field] for field in both)


def _parsed(digests: str) -> tuple[str, dict[str, str]]:
    clear, *keys = digests.split(" ")
    return clear, {key_id: digest for key_id, _, digest in (key.partition(":") for key in keys)}
