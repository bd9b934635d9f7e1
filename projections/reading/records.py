"""Reads events that are not exactly as declared, as the live query's SQL does, and says why nobody can read others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from headwater.eventlog.envelope import SPEC_VERSION, Envelope
from headwater.eventlog.letters import Letter as DeadLetter
from headwater.eventlog.letters import time_of
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.json_text import as_text, first_document

__all__ = ["Letter", "Recorded", "Unreadable", "event_in"]


class Recorded(Protocol):
    """A record, as Kafka's client has it."""

    def offset(self) -> Any:
        """Its offset."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and milliseconds since 1970."""

    def key(self) -> Any:
        """Bytes, or None."""

    def value(self) -> Any:
        """Bytes; None: a tombstone."""


class Letter(NamedTuple):
    """The dead letter of a record that nobody can read: its place and its text, as in `dead-letters`."""

    source: str
    offset: int
    text: bytes

    @classmethod
    def of(cls, source: str, record: Recorded, reason: str) -> Letter:
        """The one that the live query writes for this record."""
        topic, partition = topic_and_partition(source)
        letter = DeadLetter(reason, time_of(record.timestamp()[1]), record.key(), record.value())
        text = letter.to_json(topic=topic, partition=partition, offset=record.offset())
        return cls(source, record.offset(), text)

    @property
    def key(self) -> str:
        """Of its record in `dead-letters`."""
        return "/".join(map(str, (*topic_and_partition(self.source), self.offset)))


def event_in(record: Recorded) -> Envelope:
    """The event in a record; raises Unreadable."""
    try:
        text = (record.value() or b"").decode()
    except UnicodeDecodeError as error:
        raise Unreadable("not an event: the record is not UTF-8 text") from error
    document = first_document(text)
    if not isinstance(document, dict) or document.get("specversion") is None:
        raise Unreadable('not an event: malformed JSON, or no "specversion"')
    if not text.rstrip().endswith("}"):
        raise Unreadable("not an event: the record is not one JSON object")
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
        texts["id"],
        texts["type"],
        texts["subject"],
        datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC),
        data if isinstance(data, dict) else {},
        data_version=version,
        sequence=sequence,
    )


def _text(value: Any) -> str:
    """Spark reads any value as text."""
    return "" if value is None else as_text(value)


def _integer(value: Any) -> int:
    return value if type(value) is int and abs(value) < 2**63 else 0
