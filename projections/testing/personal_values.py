"""Personal values in tests of views: sealed in what a view reads, and opened in its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import structs

from commands.declaring.aggregate import Event
from eventlog.envelope import Envelope, decode, encode
from eventlog.personal.installed import installed
from eventlog.personal.sealed_text import changed_texts
from projections.view import View


def sealed_envelope(kind: type[Event], envelope: Envelope) -> Envelope:
    """An event as the log has it."""
    if kind.sealed_fields is None:
        return envelope
    data = kind.sealed_fields.sealed(orjson.loads(orjson.dumps(envelope.data)), envelope.stream.partition("/")[2])
    return structs.replace(envelope, data=data)


def sealed_record(kind: type[Event], value: bytes | None) -> bytes | None:
    """The value of an event's record as the log has it."""
    if kind.sealed_fields is None or value is None:
        return value
    return encode(sealed_envelope(kind, decode(value)))


def opened_rows(view: View, rows: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows of a view with opened values."""
    return {
        key: {name: changed_texts(each, _opened) if name in view.personal else each for name, each in row.items()}
        for key, row in rows.items()
    }


def _opened(text: str) -> Any:
    return installed().open(text)
