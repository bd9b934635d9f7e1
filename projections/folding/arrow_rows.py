"""Folded rows as Arrow batches, in the form that bulk writers take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from headwater.projections.limits import BATCH_ENTRIES, BATCH_ROWS
from headwater.projections.reading.fold_records import Row
from headwater.projections.reading.lists import entries
from headwater.projections.reading.program import Program
from headwater.projections.stores.arrow import ARROW_TYPES, arrow_array
from headwater.projections.table.decimals import fits_digits
from headwater.projections.table.monoids import StateField
from headwater.projections.table.types import ColumnType

UNFIT: Final = (OverflowError, ValueError, TypeError)
"""What Arrow raises for a value that its type does not have."""


def batches(program: Program, items: Iterable[tuple[str, Row]], unfit: set[str]) -> Iterator[pa.RecordBatch]:
    """Rows in batches: the key, then every state field by name. items: each key with its row.

    Rows with a value that Arrow cannot hold, such as an integer over 64 bits, are left out; their keys go to `unfit`.
    """
    schema = pa.schema([(program.key_name, pa.string()), *((each.name, _type(each)) for each in program.fields)])
    for some in _in_batches(program, items):
        batch, left_out = _batch(program, schema, some)
        unfit |= left_out
        if batch.num_rows:
            yield batch


def _batch(program: Program, schema: pa.Schema, some: Sequence[tuple[str, Row]]) -> tuple[pa.RecordBatch, set[str]]:
    """The rows, and the keys of those that are left out."""
    try:
        return _whole_batch(program, schema, some), set()
    except UNFIT:
        fitting = [each for each in some if _fits(program, schema, each)]
        left_out = {key for key, _ in some} - {key for key, _ in fitting}
        if not left_out:
            raise
        return _whole_batch(program, schema, fitting), left_out


def _whole_batch(program: Program, schema: pa.Schema, some: Sequence[tuple[str, Row]]) -> pa.RecordBatch:
    keys = pa.array([key for key, _ in some], pa.string())
    columns = [_column(field, at, [row for _, row in some]) for at, field in enumerate(program.fields)]
    return pa.RecordBatch.from_arrays([keys, *columns], schema=schema)


def _fits(program: Program, schema: pa.Schema, item: tuple[str, Row]) -> bool:
    try:
        _whole_batch(program, schema, [item])
    except UNFIT:
        return False
    return True


def _in_batches(program: Program, items: Iterable[tuple[str, Row]]) -> Iterator[list[tuple[str, Row]]]:
    left = iter(items)
    if not program.lists:
        while some := list(islice(left, BATCH_ROWS)):
            yield some
        return
    some, held = [], 0
    for each in left:
        some.append(each)
        held += sum(entries(each[1][at]) for at in program.lists)
        if len(some) >= BATCH_ROWS or held >= BATCH_ENTRIES:
            yield some
            some, held = [], 0
    if some:
        yield some


def _column(field: StateField, at: int, rows: Sequence[Row]) -> Any:
    values = [row[at] for row in rows]
    if field.type is ColumnType.COUNTS:
        values = [_listed(value) for value in values]
    if field.type.is_decimal:
        must_fit(field.name, values, field.type.digits)
    for each in field.entry if field.type is ColumnType.ENTRIES else ():
        if each.type.is_decimal:
            must_fit(each.name, (one.get(each.name) for some in values for one in some or ()), each.type.digits)
    return arrow_array(values, _type(field))


def must_fit(name: str, values: Iterable[str | None], digits: int) -> None:
    """Raise ValueError if a decimal, such as a sum, needs more digits than its column has."""
    for value in values:
        if value is not None and not fits_digits(value, digits):
            raise ValueError(f'"{name}" has more than the {digits} digits of its column')


def _listed(tally: dict[str, int] | None) -> list[dict[str, Any]] | None:
    return None if tally is None else [{"v": key, "n": number} for key, number in tally.items()]


def _type(field: StateField) -> pa.DataType:
    if field.type is ColumnType.ENTRIES:
        return pa.list_(pa.struct([(each.name, _entry_type(each)) for each in field.entry]))
    return ARROW_TYPES[field.type]


def _entry_type(field: StateField) -> pa.DataType:
    """In entries a time stays text."""
    return pa.string() if field.type is ColumnType.TIME else _type(field)
