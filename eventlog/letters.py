"""Dead letters: records that could not be processed, with their place, the reason, and their content if it fits."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog.envelope import format_time
from headwater.eventlog.hidden_values import without_values
from headwater.eventlog.limits import MAX_RECORD_BYTES, size_of
from headwater.eventlog.topics import CAPTURED, COMMANDS, EVENTS, INBOX, OBSERVATIONS, PATCHES, PROCESSES

VALUE_BYTES: Final = MAX_RECORD_BYTES * 5 // 8
"""The longest value that is kept: base64 makes it a third longer, and a letter must fit in a record."""
KEY_BYTES: Final = MAX_RECORD_BYTES // 16
REASON_CHARACTERS: Final = 10_000
LETTER_KEY_BYTES: Final = 64 * 1024
"""Of the key of a letter itself, which may name a row, or a timer."""
SHOWN_KEY_CHARACTERS: Final = 1_000


class Letter(NamedTuple):
    """A dead letter.

    reason: why it was not processed. time: of the record, RFC 3339. key, value: of the record; a value of more than
    VALUE_BYTES is not kept, and the reason says so.
    """

    reason: str
    time: str
    key: bytes | None
    value: bytes | None

    @classmethod
    def from_json(cls, written: bytes) -> Letter:
        """Read a record's value."""
        document = orjson.loads(written)
        texts = (document.get(name) for name in ("key", "value"))
        key, value = (None if text is None else base64.b64decode(text) for text in texts)
        return cls(document.get("reason", ""), str(document.get("time") or ""), key, value)

    def to_json(self, **place: Any) -> bytes:
        """The letter as a record's value; place: `topic`, `partition` and `offset` of the failed record."""
        # it may quote characters that JSON text cannot contain
        reason = without_values(self.reason)[:REASON_CHARACTERS].encode(errors="replace").decode()
        if self.value is not None and len(self.value) > VALUE_BYTES:
            reason = f"{reason} (value not kept: {len(self.value)} bytes are too large)"
        kept = {"key": _text(self.key, KEY_BYTES), "value": _text(self.value, VALUE_BYTES)}
        return orjson.dumps({**place, "reason": reason, "time": self.time, **kept})


def letter_key(place: str) -> str:
    """The key of the letter of `place`: the place, or its beginning and a digest if it is too long for a record."""
    if size_of(place) <= LETTER_KEY_BYTES:
        return place
    digest = hashlib.blake2b(place.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{place[:SHOWN_KEY_CHARACTERS]}…{digest}"


def time_of(timestamp_ms: int) -> str:
    """A record's timestamp as the time of its letter."""
    return format_time(datetime.fromtimestamp(timestamp_ms / 1000, UTC))


def _text(data: bytes | None, maximum: int) -> str | None:
    return None if data is None or len(data) > maximum else base64.b64encode(data).decode()


LOST: Final = re.compile(r"[\w.-]+/\d+/\d+-\d+")
"""Key of a letter about offsets that retention deleted."""
ROUTED_BY: Final = "router"
"""The last part of the key if a router could not read the record; the read side may have a letter of its own for it."""
SENT_BY: Final = "outbox"
"""Likewise if a message in an outbox is no command."""
OF_TOPICS: Final[Mapping[str, str]] = {
    COMMANDS: "unreadable command",
    EVENTS: "unreadable event",
    OBSERVATIONS: "unreadable observation",
    PATCHES: "refused patch",
    INBOX: "failed process",
    PROCESSES: "unreadable instance",
}
OTHER: Final = "other"
CAUSES: Final = (
    *OF_TOPICS.values(),
    "unreadable row",
    "not routed",
    "no command in outbox",
    "failed timer",
    "deleted unread",
    OTHER,
)
"""All causes."""


def cause_of(key: str) -> str:
    """One of CAUSES, by the key of a dead letter."""
    topic, *rest = key.split("/")
    *middle, last = rest or [""]
    if LOST.fullmatch(key):
        return "deleted unread"
    if last == ROUTED_BY and len(middle) == 2:
        return "not routed"
    if last == SENT_BY and len(middle) == 2:
        return "no command in outbox"
    if topic == INBOX and middle[1:2] == ["timer"]:
        return "failed timer"
    return OF_TOPICS.get(topic) or ("unreadable row" if topic.startswith(CAPTURED) else OTHER)
