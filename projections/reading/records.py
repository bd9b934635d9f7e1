"""Reads records of the log: events that are not exactly as declared, and changes of rows that are.

The definition of changes is `projections/table/changes.py`. It also reads all other records: deletes, older rows that
lack a column, values that a record does not contain, and values of other types. What is here is several times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec

from headwater.eventlog.capturing.changes import WRITES
from headwater.eventlog.capturing.columns import Column, Kind
from headwater.eventlog.capturing.values import is_stand_in, stand_ins
from headwater.eventlog.envelope import SPEC_VERSION, Envelope
from headwater.eventlog.letters import Letter as DeadLetter
from headwater.eventlog.letters import time_of
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.reading.runtime import Unclear
from headwater.projections.table.changes import Absent, TableReader, key_text, reader, view_key
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import attribute
from headwater.projections.table.json_text import as_text, dumps, first_document

__all__ = ["ClearChanges", "Letter", "Recorded", "Unreadable", "event_in"]
INTEGER: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
TYPES: Final[dict[Kind, Any]] = {
    Kind.INTEGER: INTEGER,
    Kind.FLOAT: float,
    Kind.BOOLEAN: bool,
    Kind.JSON: Any,
    Kind.ARRAY: list[Any],
}
"""What a record has for a column of each kind; text if it is not listed."""
EMBEDDED: Final = frozenset({Kind.JSON, Kind.ARRAY})
"""Kinds that stay JSON text in the decoded data."""
AS_THEY_ARE: Final = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN, Kind.TEXT, Kind.UUID, Kind.BYTES})
"""Kinds whose values need no conversion."""
_NULL: Final = msgspec.Raw(b"null")
Read = Callable[[Any], Any]


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
    texts = {name: as_text(document.get(name)) for name in ("id", "type", "subject", "specversion")}
    if texts.pop("specversion") != SPEC_VERSION:
        raise Unreadable(f'not an event: "specversion" is not "{SPEC_VERSION}"')
    for name, text_of in texts.items():
        if document.get(name) is None or not text_of:
            raise Unreadable(f'not an event: "{name}" is missing')
    numbers = (document.get(name) for name in ("sequence", "dataversion"))
    sequence, version = (number if type(number) is int and abs(number) < 2**63 else 0 for number in numbers)
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


class ClearChanges:
    """Reads the changes of one table or view. Its methods raise UNFIT if a record is left to the definition."""

    UNFIT: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError)

    def __init__(self, table: TableReader) -> None:
        names = {attribute(column.name): column for column in table.columns}
        row = msgspec.defstruct(
            "Row",
            [(name, _type(column)) for name, column in names.items()],
            rename={name: column.name for name, column in names.items()},
            gc=False,
            kw_only=True,
        )
        fields: list[Any] = [("data", row)] if table.is_of_view else [("op", str), ("after", row)]
        change = msgspec.defstruct("Change", fields, gc=False)
        self._is_of_view = table.is_of_view
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(change).decode
        self._texts = [
            (name, frozenset(mark for mark in stand_ins(column) if isinstance(mark, str)))
            for name, column in names.items()
            if TYPES.get(column.kind) is None and column.kind in AS_THEY_ARE and not table.is_of_view
        ]
        self._read = [
            (name, _reading(column, may_be_absent=not table.is_of_view), column.kind in EMBEDDED)
            for name, column in names.items()
            if column.kind not in AS_THEY_ARE
        ]
        self.key = view_key if table.is_of_view else _key(table.key)
        """The key of a view's row, from that of a record."""

    def row(self, value: bytes | None) -> Any:
        """The values of the row, in the form of compiled decoders."""
        if value is None:
            raise Unclear("deleted")
        if not value.isascii():
            value.decode()  # skipped fields are not checked otherwise
        record = self._decode(value)
        row = record.data if self._is_of_view else record.after
        if not self._is_of_view and record.op not in WRITES:
            raise Unclear(record.op)
        for name, marks in self._texts:
            if getattr(row, name) in marks:
                raise Unclear(name)
        for name, read, embedded in self._read:
            found = getattr(row, name)
            if found is not None:
                found = read(found)
            if embedded:
                setattr(row, name, _NULL if found is None else msgspec.Raw(dumps(found).encode()))
            else:
                setattr(row, name, found)
        return row


def _type(column: Column) -> Any:
    kind = TYPES.get(column.kind, str)
    return kind | None if column.nullable else kind


def _reading(column: Column, *, may_be_absent: bool) -> Read:
    """What makes a view's value of a value that is not null; raises Unclear where the definition must look.

    may_be_absent: whether a stand-in may be in its place.
    """
    read, nullable = reader(column), column.nullable

    def found(value: Any) -> Any:
        value_read = Absent.UNFIT if may_be_absent and is_stand_in(column, value) else read(value)
        if isinstance(value_read, Absent) or (value_read is None and not nullable):
            raise Unclear(column.name)
        return value_read

    return found


def _key(columns: Sequence[Column]) -> Callable[[bytes | None], str]:
    if len(columns) == 1 and columns[0].kind is Kind.INTEGER:
        key = msgspec.defstruct("Key", [("column", INTEGER)], rename={"column": columns[0].name}, gc=False)
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(key).decode
        return lambda column_key: str(decode(column_key or b"").column)
    return lambda values: key_text(columns, values)
