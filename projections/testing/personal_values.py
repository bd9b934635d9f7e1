"""What tests of views read and get: personal values are sealed in events, and rows are as the API answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope, decode, encode
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.sealed_text import changed_texts
from headwater.projections.table.json_forms import json_value, with_json
from headwater.projections.table.json_text import dumps, loads
from headwater.projections.view import View


def sealed_envelope(kind: type[Event], envelope: Envelope) -> Envelope:
    """An event as the log has it."""
    if kind.sealed_fields is None:
        return envelope
    data = kind.sealed_fields.sealed(loads(dumps(envelope.data).encode()), envelope.stream.partition("/")[2])
    return structs.replace(envelope, data=data)


def sealed_record(kind: type[Event], value: bytes | None) -> bytes | None:
    """The value of an event's record as the log has it."""
    if kind.sealed_fields is None or value is None:
        return value
    return encode(sealed_envelope(kind, decode(value)))


def answered_rows(
    view: View, rows: Mapping[str, dict[str, Any]], made: Callable[[str], Any] = json_value
) -> dict[str, dict[str, Any]]:
    """Stored rows as the API answers them: with opened values, and what `made` makes of JSON texts."""
    opened = [
        {name: changed_texts(each, _opened) if name in view.personal else each for name, each in row.items()}
        for row in rows.values()
    ]
    return dict(zip(rows, with_json(opened, view.json_forms, made, stored=[*rows.values()]), strict=True))


def _opened(text: str) -> Any:
    return installed().open(text)
