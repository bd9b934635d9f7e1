"""Folded rows as Arrow batches, in the form that bulk writers take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from projections.folding.compiled import Program
from projections.folding.folder import Row, Rows
from projections.stores.arrow import ARROW_TYPES, arrow_array
from projections.table.monoids import StateField
from projections.table.types import ColumnType

BATCH_ROWS: Final = 10_000


def batches(program: Program, rows: Rows) -> Iterator[pa.RecordBatch]:
    """The rows in batches: the key, then every state field by name."""
    schema = pa.schema([(program.key_name, pa.string()), *((each.name, _type(each)) for each in program.fields)])
    left = iter(rows.items())
    while some := list(islice(left, BATCH_ROWS)):
        keys = pa.array([key for key, _ in some], pa.string())
        columns = [_column(field, at, [row for _, row in some]) for at, field in enumerate(program.fields)]
        yield pa.RecordBatch.from_arrays([keys, *columns], schema=schema)


def _column(field: StateField, at: int, rows: Sequence[Row]) -> Any:
    values = [row[at] for row in rows]
    if field.type is ColumnType.COUNTS:
        values = [_listed(value) for value in values]
    return arrow_array(values, _type(field))


def _listed(tally: dict[str, int] | None) -> list[dict[str, Any]] | None:
    return None if tally is None else [{"v": key, "n": number} for key, number in tally.items()]


def _type(field: StateField) -> pa.DataType:
    if field.type is ColumnType.ENTRIES:
        return pa.list_(pa.struct([(each.name, _entry_type(each)) for each in field.entry]))
    return ARROW_TYPES[field.type]


def _entry_type(field: StateField) -> pa.DataType:
    """In entries a time stays text."""
    return pa.string() if field.type is ColumnType.TIME else _type(field)
