"""Reads changes of captured tables, and rows in topics of views, that are exactly as declared.

It is several times faster than their definition.

The definition is `projections/table/changes.py`. It also reads all other records: deletes, older rows that lack a
column, values that a record does not contain, and values of other types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from headwater.eventlog.capturing.changes import WRITES
from headwater.eventlog.capturing.columns import Column, Kind
from headwater.eventlog.capturing.values import is_stand_in, stand_ins
from headwater.projections.reading.runtime import Unclear
from headwater.projections.table.changes import Absent, TableReader, key_text, reader, view_key
from headwater.projections.table.expressions import attribute
from headwater.projections.table.json_text import dumps

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
        made = Absent.UNFIT if may_be_absent and is_stand_in(column, value) else read(value)
        if isinstance(made, Absent) or (made is None and not nullable):
            raise Unclear(column.name)
        return made

    return found


def _key(columns: Sequence[Column]) -> Callable[[bytes | None], str]:
    if len(columns) == 1 and columns[0].kind is Kind.INTEGER:
        key = msgspec.defstruct("Key", [("column", INTEGER)], rename={"column": columns[0].name}, gc=False)
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(key).decode
        return lambda found: str(decode(found or b"").column)
    return lambda found: key_text(columns, found)
