"""Reads the records of a captured table, as Debezium writes them, as changes of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from headwater.eventlog.capturing.columns import Column, Kind, Truncated
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.errors import UnreadableChange
from headwater.eventlog.capturing.positions import BinlogPosition, WalPosition, file_number
from headwater.eventlog.capturing.values import (
    TYPES,
    converter,
    is_stand_in,
    is_stored_apart,
    may_lack_value,
    timestamp,
)


class Operation(Enum):
    """What a record says of its row.

    SNAPSHOT: it was there when the table was read. TOMBSTONE: it was deleted; the record has only its key, and
    compaction removes all others. TRUNCATE: all rows of the table were deleted; the record has no key.
    """

    INSERT = "c"
    UPDATE = "u"
    DELETE = "d"
    SNAPSHOT = "r"
    TRUNCATE = "t"
    TOMBSTONE = ""


OPERATIONS: Final[Mapping[str, Operation]] = {operation.value: operation for operation in Operation if operation.value}
WRITES: Final = frozenset(operation.value for operation in (Operation.INSERT, Operation.SNAPSHOT, Operation.UPDATE))
"""The operations of records that have a row."""
OF_ROWS: Final = WRITES | {Operation.DELETE.value}
"""The operations of records that say what one row is now; views read these, and nothing else."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row.

    key: of the row, as text: `42`, or `["a",1]` if it has several columns; empty for TRUNCATE.
    row: its values as JSON, by column; None if the row is deleted.
    unchanged: columns that `row` lacks, because the update left their long values unchanged, and the row was gone when
    they were read again: they are as they were, not null.
    position: None for TOMBSTONE.
    time_ms: of the commit, since 1970.
    """

    operation: Operation
    key: str
    row: Mapping[str, Any] | None
    unchanged: tuple[str, ...] = ()
    position: WalPosition | BinlogPosition | None = None
    time_ms: int = 0

    @property
    def deletes(self) -> bool:
        """Whether the row is gone."""
        return self.operation in (Operation.DELETE, Operation.TOMBSTONE)


class _SourceInfo(msgspec.Struct):
    lsn: int | None = None
    txId: int | None = None  # noqa: N815  # Debezium's name
    ts_ms: int | None = None
    sequence: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None


class _Transaction(msgspec.Struct):
    id: str = ""
    total_order: int = 0


class _Operation(msgspec.Struct):
    op: str


_OPERATION: Final = msgspec.json.Decoder(_Operation)
_SEQUENCE: Final = msgspec.json.Decoder(tuple[str | None, str | None])
"""Where the transaction before was committed, and where the change is."""
UNFIT: Final = (ValueError, TypeError, RecursionError, OverflowError)
"""What converting a value may raise."""


class ChangeDecoder:
    """Reads the records of one captured table. It is pure, and safe to share between threads."""

    def __init__(self, table: type[Captured]) -> None:
        self._table = table.table
        self._columns = tuple(table.columns.values())
        self._names = tuple(table.columns)
        self._converters = _converters(self._columns, table.key)
        self._short = tuple(column for column in self._columns if isinstance(column.mask, Truncated))
        self._strict = any(not column.nullable for column in self._columns)
        row = _row_type("Row", self._columns)
        envelope = msgspec.defstruct(
            "Envelope",
            [
                ("op", str),
                ("source", _SourceInfo),
                ("before", row | None, None),
                ("after", row | None, None),
                ("transaction", _Transaction | None, None),
            ],
        )
        self._value: msgspec.json.Decoder[Any] = msgspec.json.Decoder(envelope)
        keys = tuple(table.columns[name] for name in table.key)
        self._key = msgspec.json.Decoder(_row_type("Key", keys))
        self._key_columns = keys
        self._key_converters = tuple(map(converter, keys))

    def operation(self, value: bytes) -> Operation | None:
        """The operation in a record, without the row; None if it is unknown. Raises UnreadableChange."""
        try:
            return OPERATIONS.get(_OPERATION.decode(value).op)
        except msgspec.MsgspecError as error:
            raise self._unreadable(f"it is not a record of Debezium ({error})") from error

    def lacks_value(self, value: bytes) -> bool:
        """Whether a record lacks a value that an update left as it was; False if it cannot be read."""
        if not may_lack_value(value):
            return False
        try:
            record = self._value.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return False
        if record.after is None:
            return False
        row = dict(zip(self._names, msgspec.structs.astuple(record.after), strict=True))
        return bool(self._leave_out(row, record))

    def decode(self, key: bytes | None, value: bytes | None) -> Change:
        """The change in a record of the table's topic; raises UnreadableChange with what to do."""
        try:
            return self._decode(key, value)
        except msgspec.ValidationError as error:
            raise self._unreadable(f"{error}: declare the column with the type that it has in the database") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._unreadable(f"it is not a record of Debezium ({error})") from error

    def _decode(self, key: bytes | None, value: bytes | None) -> Change:
        if not value:
            if not key:
                raise self._unreadable("it has neither a key nor a value")
            return Change(Operation.TOMBSTONE, key_as_text(self._key_of(key)), None)
        record = self._value.decode(value)
        operation = OPERATIONS.get(record.op)
        if operation is None:
            raise self._unreadable(f'its operation is "{record.op}"')
        position, time_ms = _position(record), record.source.ts_ms or 0
        if operation is Operation.TRUNCATE:
            return Change(operation, "", None, position=position, time_ms=time_ms)
        if not key:
            raise self._unreadable("it has no key: give the table a REPLICA IDENTITY that covers its key")
        key_text = key_as_text(self._key_of(key))
        if operation is Operation.DELETE:
            return Change(operation, key_text, None, (), position, time_ms)
        if record.after is None:
            raise self._unreadable("it has no row")
        row, unchanged = self._row(record, value)
        return Change(operation, key_text, row, unchanged, position, time_ms)

    def _row(self, record: Any, encoded: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The values of the row, and the columns whose values the record lacks."""
        values = msgspec.structs.astuple(record.after)
        row = dict(zip(self._names, values, strict=True))
        unchanged: tuple[str, ...] = ()
        if self._short or may_lack_value(encoded):
            unchanged = self._leave_out(row, record)
        for column in self._columns if msgspec.UNSET in values else ():
            if row.get(column.name) is msgspec.UNSET:
                if column.required:
                    raise self._unreadable(
                        f'it lacks the column "{column.name}": if the table has it no longer, remove it from the '
                        "class; if the record is older than the column, give the field a default"
                    )
                row[column.name] = column.default
        name = ""
        try:
            for name, convert in self._converters:
                value = row.get(name)
                if value is not None:
                    row[name] = convert(value)
        except UNFIT as error:
            raise self._unreadable(f'the column "{name}": {error}') from error
        if self._strict and None in row.values():
            for column, recorded in zip(self._columns, values, strict=True):
                if not column.nullable and column.name in row and row[column.name] is None:
                    shown_value = "null" if recorded is None else f"{recorded!r}, which is read as null"
                    raise self._unreadable(f'the column "{column.name}" is {shown_value}: add | None to its type')
        return row, unchanged

    def _leave_out(self, row: dict[str, Any], record: Any) -> tuple[str, ...]:
        """Take stand-ins out of a row, or put in the values of the old row, if the record has it."""
        before, is_update = record.before, record.op == Operation.UPDATE.value
        old_row = {} if before is None else dict(zip(self._names, msgspec.structs.astuple(before), strict=True))
        left_out = []
        for column in self._columns:
            name = column.name
            if not is_stand_in(column, row[name], is_update=is_update):
                continue
            old = old_row.get(name)
            if is_stored_apart(old) and not is_stand_in(column, old):
                row[name] = old
            else:
                del row[name]
                left_out.append(name)
        return tuple(left_out)

    def key_values(self, key: bytes) -> list[str]:
        """The values in a record's key as texts, in the order of the declared key; raises UnreadableChange."""
        try:
            return [part if isinstance(part, str) else _as_json(part) for part in self._key_of(key)]
        except msgspec.MsgspecError as error:
            raise self._unreadable(f"its key is not that of a record of Debezium ({error})") from error

    def _key_of(self, key: bytes) -> list[Any]:
        values = msgspec.structs.astuple(self._key.decode(key))
        parts = []
        for column, convert, value in zip(self._key_columns, self._key_converters, values, strict=True):
            if value is None or value is msgspec.UNSET:
                raise self._unreadable(
                    f'its key has no "{column.name}": give the table a REPLICA IDENTITY that covers its key'
                )
            try:
                converted = value if convert is None else convert(value)
            except UNFIT as error:
                raise self._unreadable(f'the column "{column.name}" of its key: {error}') from error
            if converted is None:
                raise self._unreadable(
                    f'the column "{column.name}" of its key is {value!r}, which is read as null, and a key cannot be: '
                    "change it in the database, or declare another key"
                )
            parts.append(converted)
        return parts

    def _unreadable(self, reason: str) -> UnreadableChange:
        return UnreadableChange(self._table, reason)


def key_as_text(values: Sequence[Any]) -> str:
    """A key as text, of the values of its columns in a row: `42`, or `["a",1]` if it has several columns."""
    only = values[0] if len(values) == 1 else values
    return only if isinstance(only, str) else _as_json(only)


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _row_type(name: str, columns: tuple[Column, ...]) -> type[msgspec.Struct]:
    """A struct with a field per column, in their order. Fields have names of their own, since a column may have any."""
    fields = {f"column_{number}": column for number, column in enumerate(columns)}
    return msgspec.defstruct(
        name,
        [
            (field, TYPES.get(column.kind, str | None) | msgspec.UnsetType, msgspec.UNSET)
            for field, column in fields.items()
        ],
        rename={field: column.name for field, column in fields.items()},
    )


def _converters(columns: tuple[Column, ...], key: tuple[str, ...]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """How each column is converted. Those of the key have the text of the key, which must stay as it was."""
    converters = (
        (column.name, timestamp if column.kind is Kind.TIMESTAMP and column.name not in key else converter(column))
        for column in columns
    )
    return tuple((name, convert) for name, convert in converters if convert is not None)


def _position(record: Any) -> WalPosition | BinlogPosition:
    source = record.source
    order = record.transaction.total_order if record.transaction else 0
    in_snapshot = record.op == Operation.SNAPSHOT.value
    if source.file is not None:
        return BinlogPosition(
            number=file_number(source.file),
            pos=source.pos or 0,
            row=source.row or 0,
            order=order,
            transaction=record.transaction.id if record.transaction and not in_snapshot else "",
            file=source.file,
        )
    committed = _SEQUENCE.decode(source.sequence)[0] if source.sequence else None
    return WalPosition(
        commit_lsn=int(committed or 0),
        lsn=source.lsn or 0,
        order=order,
        transaction=0 if in_snapshot else source.txId or 0,
    )
