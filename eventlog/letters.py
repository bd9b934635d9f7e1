"""Dead letters: records that could not be processed, with their place, the reason, and their content if it fits."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.eventlog.envelope import format_time
from headwater.eventlog.hidden_values import without_values
from headwater.eventlog.limits import MAX_RECORD_BYTES, size_of

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
        key, value = (_bytes(document.get(name)) for name in ("key", "value"))
        return cls(document.get("reason", ""), str(document.get("time") or ""), key, value)

    def to_json(self, **place: Any) -> bytes:
        """The letter as a record's value; place: `topic`, `partition` and `offset` of the failed record."""
        return orjson.dumps(
            {
                **place,
                "reason": self._full_reason(),
                "time": self.time,
                "key": _text(self.key, KEY_BYTES),
                "value": _text(self.value, VALUE_BYTES),
            }
        )

    def _full_reason(self) -> str:
        # it may quote characters that JSON text cannot contain
        reason = without_values(self.reason)[:REASON_CHARACTERS].encode(errors="replace").decode()
        left_out = self.value is not None and len(self.value) > VALUE_BYTES
        return f"{reason} (value not kept: {len(self.value or b'')} bytes are too large)" if left_out else reason


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


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
