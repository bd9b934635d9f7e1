"""Reads records of captured tables, as Debezium writes them, and of topics of views: this defines what the live
query's SQL does.

A record names its row by its key. Its value says what the row is now, or it is missing or says that the row is deleted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.times import is_outside, is_time
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.changes import OF_ROWS, Operation, key_as_text
from headwater.eventlog.capturing.columns import Column, Kind
from headwater.eventlog.capturing.values import (
    CONVERTERS,
    LONG_CHARACTERS,
    NOT_FINITE,
    is_stand_in,
)
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.integers import fits_64_bits
from headwater.eventlog.source_positions import source_id
from headwater.projections.table.json_text import as_text, first_document, loads
from headwater.projections.table.rows import Deleted, RowClass, exact_type, row_of
from headwater.projections.table.types import ColumnType, exact_value


class Absent(Enum):
    """Why a record has no value for a column.

    UNFIT: it lacks the column, has null where the class excludes it, or a value of another type. UNCHANGED: the update
    did not change it, and PostgreSQL did not send its long value, nor could it be read again: the row is deleted, or
    has another key, and a record that says so follows.
    """

    UNFIT = "unfit"
    UNCHANGED = "unchanged"


class NotAChange(ValueError):
    """A record is not a change of a row of its table or view; the message says why, like the live query."""


class RecordPlace(NamedTuple):
    """Where a record is. topic: without the environment."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


NOT_TEXT: Final = "not a row of a view: its key is not UTF-8 text"
NO_DATA: Final = 'not a row of a view: malformed JSON, or no "data"'
MAX_DIGITS: Final = 20
"""Of an integer that fits in 64 bits, with its sign."""
BLANKS: Final = " \t\r\n"
"""What a JSON text may begin with: a column of PostgreSQL's type json has it as it was written."""
SHORT: Final = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN})
"""Kinds whose values are never stored apart."""
READ_YEAR: Final = r"(?!0000)[0-9]{4}-"
"""Times before and after these years are null, because no store has them."""
WHOLE: Final = r"-?[0-9]+"
NUMBER: Final = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
"""Patterns of texts that are integers or numbers; Java and Python read them the same way."""
_WHOLE, _NUMBER, _YEAR = re.compile(WHOLE), re.compile(NUMBER), re.compile(READ_YEAR)


@dataclass(frozen=True)
class TableReader:
    """What is read of a captured table, or of the topic of a view; it can be pickled to other processes.

    columns: that are read. key: its key; empty for a view, whose records have the key of the row. row, deleted: the
    types of its events.
    """

    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    row: str
    deleted: str

    @classmethod
    def of(cls, table: RowClass, names: Iterable[str]) -> TableReader:
        """Reads the columns `names` of a table."""
        columns = tuple(table.columns[name] for name in sorted(names))
        return cls(columns, tuple(key_columns(table)), row_of(table).type, Deleted(table).type)

    @property
    def is_of_view(self) -> bool:
        """Whether it reads the topic of a view."""
        return not self.key


def key_columns(table: RowClass) -> list[Column]:
    """The columns of the keys of a captured table's records; none of a view's, which are the keys of its rows."""
    return [] if issubclass(table, ViewRow) else [table.columns[name] for name in table.key]


def envelope_of(table: TableReader, place: RecordPlace, key: bytes | None, value: bytes | None) -> Envelope:
    """The change in a record as an envelope; its data is by column, with Absent where there is no value.

    Raises NotAChange.
    """
    if table.is_of_view:
        return _view_row(table, place, key, value)
    document = None if value is None else _document(value)
    row_key = key_text(table.key, key)
    if document is None or document.get("op") == Operation.DELETE.value:
        return _envelope(table.deleted, row_key, place, {})
    after = document.get("after")
    if not isinstance(after, dict):
        raise NotAChange('not a change: "after" is missing')
    before = document.get("before")
    is_update = document.get("op") == Operation.UPDATE.value
    data = values_of(table.columns, after, before if isinstance(before, dict) else {}, is_update=is_update)
    return _envelope(table.row, row_key, place, data)


def _view_row(table: TableReader, place: RecordPlace, key: bytes | None, value: bytes | None) -> Envelope:
    """Likewise, of a record in the topic of a view; a tombstone is a deleted row."""
    document = None if value is None else _json_of(value, "a row of a view")
    row_key = view_key(key)
    if value is None:
        return _envelope(table.deleted, row_key, place, {})
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise NotAChange(NO_DATA)
    return _envelope(table.row, row_key, place, values_of(table.columns, data))


def view_key(key: bytes | None) -> str:
    """The key of a row of a view, from that of its record; raises NotAChange."""
    try:
        if key is not None:
            return key.decode()
    except UnicodeDecodeError as error:
        raise NotAChange(NOT_TEXT) from error
    raise NotAChange(NOT_TEXT)


def _json_of(value: bytes, what: str) -> Any:
    """The document in a record; None if it is no JSON."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise NotAChange(f"not {what}: the record is not UTF-8 text") from error
    return first_document(text)


def _document(value: bytes) -> dict[str, Any]:
    document = _json_of(value, "a change")
    operation = document.get("op") if isinstance(document, dict) else None
    if operation is None:
        raise NotAChange('not a change: malformed JSON, or no "op"')
    if not isinstance(operation, str) or operation not in OF_ROWS:
        raise NotAChange('not a change: "op" is not c, r, u or d')
    return dict(document)


def _envelope(type_: str, key: str, place: RecordPlace, data: Mapping[str, Any]) -> Envelope:
    return Envelope(
        f"{source_id(place.topic, place.partition)}:{place.offset}",
        type_,
        key,
        datetime.fromtimestamp(place.timestamp_ms / 1000, UTC),
        data,
        data_version=1,
        sequence=place.offset,
    )


def key_text(columns: Sequence[Column], key: bytes | None) -> str:
    """The key of a view's row: `42`, or `["a",1]` if the table's key has several columns; raises NotAChange."""
    names = ", ".join(f'"{column.name}"' for column in columns)
    unfit = NotAChange(f"not a change: its key lacks {names}, or has it with another type")
    try:
        parts = orjson.loads(key or b"")
    except orjson.JSONDecodeError as error:
        raise unfit from error
    if not isinstance(parts, dict):
        raise unfit
    values = list(values_of(columns, parts, {}).values())
    if any(value is None or isinstance(value, Absent) for value in values):
        raise unfit
    return key_as_text(values)


def values_of(
    columns: Iterable[Column],
    row: Mapping[str, Any],
    old: Mapping[str, Any] | None = None,
    *,
    is_update: bool = False,
) -> dict[str, Any]:
    """The values of a row as views have them, by column.

    old: the row before, as far as the record has it; None: no value can be missing from the record. is_update: see
    `stand_ins`.
    """
    values: dict[str, Any] = {}
    for column in columns:
        value: Any = row.get(column.name)
        if old is not None and value is not None and is_stand_in(column, value, is_update=is_update):
            value = old.get(column.name)
            if not _was_stored_apart(column, value) or is_stand_in(column, value):
                values[column.name] = Absent.UNCHANGED
                continue
        if value is not None:
            value = reader(column)(value)
        elif column.name not in row and column.default is not None:
            value = reader(column)(column.default)
        if value is None and not column.nullable:
            value = Absent.UNFIT
        values[column.name] = value
    return values


def _was_stored_apart(column: Column, old: Any) -> bool:
    """Whether a value of an old row may be one that PostgreSQL stored apart; see `eventlog.capturing.values`."""
    if column.kind in SHORT or old is None:
        return False
    if column.kind is Kind.ARRAY:
        text = as_text(old).lstrip(BLANKS)  # of a column of JSON it is a text
        return text.startswith("[") and text != "[]"
    return len(as_text(old)) > LONG_CHARACTERS


@cache
def reader(column: Column) -> Callable[[Any], Any]:
    """What makes a view's value of a value in a record that is not null: None, or UNFIT, where there is none."""
    exact = exact_type(column)
    if exact is not None:
        return lambda value: _exact(as_text(value), exact)
    match column.kind:
        case Kind.INTEGER:
            return _integer
        case Kind.FLOAT:
            return _float
        case Kind.BOOLEAN:
            return lambda value: {"true": True, "false": False}.get(as_text(value), Absent.UNFIT)
        case Kind.DECIMAL:
            return lambda value: None if as_text(value) in NOT_FINITE else as_text(value)
        case Kind.TIMESTAMP:
            return _timestamp
        case Kind.TIME:
            return lambda value: as_text(value).removesuffix("Z")
        case Kind.INTERVAL:
            return _interval
        case Kind.ENUM:
            return lambda value: value if value in column.choices else Absent.UNFIT
        case Kind.JSON:
            return _json
        case Kind.ARRAY:
            return _array
        case _:
            return as_text


def _exact(text: str, kind: ColumnType) -> str | Absent | None:
    """The text of a decimal or a day, if it is one: nothing is rounded."""
    if kind is ColumnType.DATE:
        if not _YEAR.match(text):
            return None
        text = text.removesuffix("Z")
    elif text in NOT_FINITE:
        return None
    return Absent.UNFIT if exact_value(text, kind) is None else text


def _integer(value: Any) -> int | Absent | None:
    if type(value) is int and fits_64_bits(value):
        return value
    text = as_text(value)
    if text in NOT_FINITE:
        return None
    if not _WHOLE.fullmatch(text) or len(text) > MAX_DIGITS or not fits_64_bits(int(text)):
        return Absent.UNFIT
    return int(text)


def _float(value: Any) -> float | Absent | None:
    text = as_text(value)
    if text in NOT_FINITE:
        return None
    if not _NUMBER.fullmatch(text):
        return Absent.UNFIT
    number = float(text)
    return number if math.isfinite(number) else None


def _timestamp(value: Any) -> str | Absent | None:
    text = as_text(value)
    if not _YEAR.match(text) or is_outside(text):
        return None
    return text if is_time(text) else Absent.UNFIT


def _interval(value: Any) -> str | Absent:
    try:
        return str(CONVERTERS[Kind.INTERVAL](as_text(value)))
    except ValueError:
        return Absent.UNFIT


def _array(value: Any) -> Any:
    """A list, which is a text if the column is one of JSON; see _json."""
    items = _json(value)
    return items if isinstance(items, list) else Absent.UNFIT


def _json(value: Any) -> Any:
    """A document, which PostgreSQL has checked."""
    try:
        return loads(value.encode()) if isinstance(value, str) else value
    except ValueError:
        return Absent.UNFIT
