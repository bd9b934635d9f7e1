"""The bulk path into PostgreSQL: Arrow batches through ADBC's binary COPY."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final
from uuid import UUID

import adbc_driver_manager as adbc  # not its `dbapi`, which imports pandas where it is installed
import adbc_driver_postgresql
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.projections.errors import KeysAway, ProjectionError, StoreUnavailable, Unloadable
from headwater.projections.stores.arrow import ARROW_TYPES, arrow_array
from headwater.projections.stores.clear_columns import KEYS, NO_COLUMNS, ClearColumns
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import NUL, REPLACEMENT
from headwater.projections.stores.postgres.client import NAME, of_data
from headwater.projections.stores.postgres.rows import json_text, without_nul
from headwater.projections.stores.postgres.schema import clear_name
from headwater.projections.table.layout import Shown
from headwater.projections.table.monoids import row_value
from headwater.projections.table.types import ColumnType

POINT: Final = struct.Struct("!dd")
"""PostgreSQL's binary form of a point: x (longitude), y (latitude)."""

ARRAY, DIMENSION, LENGTH = struct.Struct("!iii"), struct.Struct("!ii"), struct.Struct("!i")
"""Of an array in this form: dimensions, whether it has nulls, type; length, first index; bytes of an item."""
TEXT_OID: Final = 25


@dataclass(frozen=True)
class PostgresWriter:
    """Copies the rows of one Spark partition in one transaction; it is sent to executors, so it has settings only.

    A task that is repeated after its commit writes its rows twice; `PostgresStore.finish` removes the duplicates.
    """

    url: str
    schema: str
    table: str
    kinds: Mapping[str, ColumnType]
    """Of state fields."""
    derived: Mapping[str, tuple[Shown, ColumnType]]
    clear: ClearColumns = NO_COLUMNS

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        first = next(rows, None)
        if first is None:
            return 0
        stored = _Stored(self._stored, chain([first], rows))
        try:
            self._copy(pa.RecordBatchReader.from_batches(self._stored(first).schema, iter(stored)))
        except adbc.Error as error:
            if stored.refused is not None:
                raise stored.refused from error
            if of_data(error.sqlstate):
                raise Unloadable(NAME, str(error)) from error
            if isinstance(error, adbc.OperationalError):
                raise StoreUnavailable(NAME, str(error)) from error
            raise
        return stored.written

    def _copy(self, rows: pa.RecordBatchReader) -> None:
        with (
            adbc_driver_postgresql.connect(self.url) as database,
            adbc.AdbcConnection(database) as connection,
            adbc.AdbcStatement(connection) as statement,
        ):
            statement.set_options(
                **{
                    adbc.StatementOptions.INGEST_TARGET_TABLE.value: self.table,
                    adbc.StatementOptions.INGEST_TARGET_DB_SCHEMA.value: self.schema,
                    adbc.StatementOptions.INGEST_MODE.value: adbc.INGEST_OPTION_MODE_APPEND,
                }
            )
            statement.bind_stream(rows)
            statement.execute_update()

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the table's form: derived columns, tallies as JSON text, points binary, no NUL in text."""
        with loadable(NAME):
            derived = {**self._derived(batch), **self._in_clear(batch)}
        for number, name in enumerate(batch.schema.names):
            stored = _in_table(batch.column(number), self.kinds.get(name, ColumnType.TEXT))
            batch = batch.set_column(number, name, stored)
        for name, column in derived.items():
            batch = batch.append_column(name, column)
        return batch

    def _derived(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if not self.derived:
            return {}
        columns = {}
        states = [{name: row_value(row[name], kind) for name, kind in self.kinds.items()} for row in batch.to_pylist()]
        for name, (shown, kind) in self.derived.items():
            values = [shown.value(state) for state in states]
            if kind is ColumnType.LIST:
                columns[name] = pa.array([orjson.dumps(without_nul(value)) for value in values], pa.binary())
            else:
                columns[name] = _in_table(arrow_array(values, ARROW_TYPES[kind]), kind)
        return columns

    def _in_clear(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if not self.clear:
            return {}
        clear_rows = self.clear.of_states(batch.select(list(self.clear.names)).to_pylist())
        columns = {
            clear_name(name): pc.replace_substring(
                pa.array([values[name] for values, _ in clear_rows], pa.string()), NUL, REPLACEMENT
            )
            for name in self.clear.names
        }
        return {**columns, KEYS: pa.array([_texts(key_ids) for _, key_ids in clear_rows], pa.binary())}


def _in_table(column: pa.Array, kind: ColumnType) -> pa.Array:
    """Values of this type in the form of their column."""
    match kind:
        case ColumnType.COUNTS | ColumnType.SKETCH | ColumnType.ENTRIES:
            held = (row_value(value, kind) for value in column.to_pylist())
            return pa.array([json_text(value, kind) for value in held], pa.string())
        case ColumnType.POINT:
            places = ((place["lon"], place["lat"]) if place else (None, None) for place in column.to_pylist())
            return pa.array([None if None in place else POINT.pack(*place) for place in places], pa.binary())
        case ColumnType.TEXT | ColumnType.JSON:
            return pc.replace_substring(column, NUL, REPLACEMENT)
        case ColumnType.FLOAT:
            return pc.add(column, 0.0)  # see `unsigned`
        case ColumnType.DATE:
            return column.cast(pa.date32())
        case ColumnType.UUID:
            return pa.array([value and UUID(value).bytes for value in column.to_pylist()], pa.binary())
        case kind if kind.is_decimal:
            with loadable(NAME):
                return column.cast(pa.decimal128(kind.digits, kind.places))
        case _:
            return column


@dataclass
class _Stored:
    """Batches in the form that `form` gives them. refused: its error, of which ADBC keeps the text only."""

    form: Callable[[pa.RecordBatch], pa.RecordBatch]
    batches: Iterable[pa.RecordBatch]
    written: int = 0
    refused: ProjectionError | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.written += batch.num_rows
            try:
                yield self.form(batch)
            except (Unloadable, KeysAway) as error:
                self.refused = error
                raise


def _texts(texts: Sequence[str]) -> bytes:
    """PostgreSQL's binary form of text[], of texts that are not null."""
    if not texts:
        return ARRAY.pack(0, 0, TEXT_OID)
    items = (LENGTH.pack(len(encoded)) + encoded for encoded in (text.encode() for text in texts))
    return ARRAY.pack(1, 0, TEXT_OID) + DIMENSION.pack(len(texts), 1) + b"".join(items)
