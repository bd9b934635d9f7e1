"""Records that compiled source does not read: what the reference makes of them, or why nobody can read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from eventlog.envelope import SPEC_VERSION, Envelope, Position
from projections.folding.folder import UnclearRecord
from projections.table import reference
from projections.table.event_data import problem
from projections.table.expressions import Source
from projections.table.patch import Patch
from projections.table.view import TableView


class Unreadable(ValueError):
    """A record is not an event, or not one that the view can read; the message says why, like the live query."""


def patches(view: TableView, record: UnclearRecord) -> list[Patch]:
    """The patches of a record, read as leniently as the live query does; raises Unreadable."""
    envelope = event_in(record)
    reason = problem([view], envelope)
    if reason is not None:
        raise Unreadable(reason)
    source = Source(envelope, Position(record.partition, record.offset), record.timestamp_ms, record.value.decode())
    return reference.lift(view, source)


def event_in(record: UnclearRecord) -> Envelope:
    """The event in a record; raises Unreadable."""
    try:
        text = record.value.decode()
    except UnicodeDecodeError as error:
        raise Unreadable("not an event: the record is not UTF-8 text") from error
    document = _document(text)
    if _text(document.get("specversion")) != SPEC_VERSION:
        raise Unreadable(f'not an event: "specversion" is not "{SPEC_VERSION}"')
    texts = {name: _text(document.get(name)) for name in ("id", "type", "subject")}
    for name, found in texts.items():
        if not found:
            raise Unreadable(f'not an event: "{name}" is missing')
    sequence, version = (_integer(document.get(name)) for name in ("sequence", "dataversion"))
    if sequence < 1:
        raise Unreadable('not an event: "sequence" is missing, or less than 1')
    data = document.get("data")
    return Envelope(
        texts["id"] or "",
        texts["type"] or "",
        texts["subject"] or "",
        datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
        data if isinstance(data, dict) else {},
        data_version=version,
        sequence=sequence,
    )


def _document(text: str) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = _first_value(text)
        if isinstance(document, dict) and document.get("specversion") is not None:
            raise Unreadable("not an event: the record is not one JSON object") from None
        document = None
    if not isinstance(document, dict) or document.get("specversion") is None:
        raise Unreadable('not an event: malformed JSON, or no "specversion"')
    return document


def _first_value(text: str) -> Any:
    """The JSON value that the text begins with; None if it begins with something else."""
    try:
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str | None:
    """Spark reads any value as text."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _integer(value: Any) -> int:
    return value if type(value) is int and abs(value) < 2**63 else 0


def rows_of(view: TableView, found: Sequence[Patch]) -> dict[str, list[Any]]:
    """Patches combined into rows, with a slot per state field."""
    states: dict[str, dict[str, Any]] = {}
    for patch in found:
        reference.combine(view, states.setdefault(patch.key, {}), patch.fields)
    names = [field.name for field in view.layout.fields]
    return {key: [state.get(name) for name in names] for key, state in states.items()}
