"""The bulk path into PostgreSQL: Arrow batches through ADBC's binary COPY."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import adbc_driver_postgresql.dbapi as adbc
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from projections.errors import StoreUnavailable
from projections.monoids import row_value
from projections.stores.names import NUL, REPLACEMENT
from projections.types import ColumnType

NAME: Final = "PostgreSQL"
POINT: Final = struct.Struct("!dd")
"""PostgreSQL's binary form of a point: x (longitude), y (latitude)."""


@dataclass(frozen=True)
class PostgresWriter:
    """Copies the rows of one Spark partition in one transaction; goes to executors, so it holds settings only.

    A task that is repeated after its commit writes its rows twice; `PostgresStore.finish` takes the copies out.
    """

    url: str
    schema: str
    table: str
    kinds: Mapping[str, ColumnType]

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        first = next(rows, None)
        if first is None:
            return 0
        written = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal written
            batch: pa.RecordBatch | None = first
            while batch is not None:
                written += batch.num_rows
                yield self._stored(batch)
                batch = next(rows, None)

        reader = pa.RecordBatchReader.from_batches(self._stored(first).schema, counted())
        try:
            with adbc.connect(self.url) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(self.table, reader, mode="append", db_schema_name=self.schema)
                connection.commit()
        except adbc.OperationalError as error:
            raise StoreUnavailable(NAME, str(error)) from error
        return written

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the forms that the table has: tallies as JSON text, points binary, no NUL in text."""
        for number, name in enumerate(batch.schema.names):
            column = batch.column(number)
            match self.kinds.get(name, ColumnType.TEXT):
                case ColumnType.COUNTS | ColumnType.SKETCH | ColumnType.ENTRIES as kind:
                    held = (row_value(each, kind) for each in column.to_pylist())
                    stored = pa.array([json_text(each, kind) for each in held], pa.string())
                case ColumnType.POINT:
                    stored = pa.array([_point(place) for place in column.to_pylist()], pa.binary())
                case ColumnType.TEXT | ColumnType.JSON:
                    stored = pc.replace_substring(column, NUL, REPLACEMENT)
                case _:
                    continue
            batch = batch.set_column(number, name, stored)
        return batch


def json_text(held: Any, kind: ColumnType) -> str | None:
    """A state field with entries as its column has it: a sketch is text already, others are JSON."""
    if held is None or kind is ColumnType.SKETCH:
        return held  # type: ignore[no-any-return]
    text = orjson.dumps(held).decode()
    return orjson.dumps(without_nul(held)).decode() if "\\u0000" in text else text


def without_nul(value: Any) -> Any:
    """`value` with every NUL in its texts replaced."""
    match value:
        case str():
            return value.replace(NUL, REPLACEMENT)
        case list():
            return [without_nul(each) for each in value]
        case dict():
            return {without_nul(name): without_nul(each) for name, each in value.items()}
        case _:
            return value


def _point(place: dict[str, Any] | None) -> bytes | None:
    if place is None or place["lat"] is None or place["lon"] is None:
        return None
    return POINT.pack(place["lon"], place["lat"])
