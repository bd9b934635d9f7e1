"""Writes folded rows to the stores of a view, as Arrow batches, and finds the rows that a store refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.projections.errors import Unloadable
from headwater.projections.folding.tasks import Written
from headwater.projections.limits import BATCH_ENTRIES, BATCH_ROWS, MAX_REFUSED
from headwater.projections.reading.fold_records import Row
from headwater.projections.reading.lists import entries
from headwater.projections.reading.program import Program
from headwater.projections.stores.arrow import ARROW_TYPES, arrow_array
from headwater.projections.stores.store import BulkWriter
from headwater.projections.table.decimals import fits_digits
from headwater.projections.table.monoids import StateField
from headwater.projections.table.types import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

UNFIT: Final = (OverflowError, ValueError, TypeError)
"""What Arrow raises for a value that its type does not have."""
log = logging.getLogger(__name__)
Batches = Callable[[set[str]], Iterator["pa.RecordBatch"]]
"""The rows from the beginning; the argument receives the keys of those that no batch can hold."""


def batches(program: Program, items: Iterable[tuple[str, Row]], unfit: set[str]) -> Iterator[pa.RecordBatch]:
    """Rows in batches: the key, then every state field by name. items: each key with its row.

    Rows with a value that Arrow cannot hold, such as an integer over 64 bits, are left out; their keys go to `unfit`.
    """
    schema = pa.schema([(program.key_name, pa.string()), *((field.name, _type(field)) for field in program.fields)])
    for some in _in_batches(program, items):
        try:
            batch = _whole_batch(program, schema, some)
        except UNFIT:
            fitting = []
            for item in some:
                with suppress(*UNFIT):
                    _whole_batch(program, schema, [item])
                    fitting.append(item)
            if len(fitting) == len(some):
                raise
            unfit |= {key for key, _ in some} - {key for key, _ in fitting}
            batch = _whole_batch(program, schema, fitting)
        if batch.num_rows:
            yield batch


def _whole_batch(program: Program, schema: pa.Schema, some: Sequence[tuple[str, Row]]) -> pa.RecordBatch:
    keys = pa.array([key for key, _ in some], pa.string())
    columns = [_column(field, at, [row for _, row in some]) for at, field in enumerate(program.fields)]
    return pa.RecordBatch.from_arrays([keys, *columns], schema=schema)


def _in_batches(program: Program, items: Iterable[tuple[str, Row]]) -> Iterator[list[tuple[str, Row]]]:
    left = iter(items)
    if not program.lists:
        while some := list(islice(left, BATCH_ROWS)):
            yield some
        return
    some, held = [], 0
    for row in left:
        some.append(row)
        held += sum(entries(row[1][at]) for at in program.lists)
        if len(some) >= BATCH_ROWS or held >= BATCH_ENTRIES:
            yield some
            some, held = [], 0
    if some:
        yield some


def _column(field: StateField, at: int, rows: Sequence[Row]) -> Any:
    values = [row[at] for row in rows]
    if field.type is ColumnType.COUNTS:
        tallies = (value if value is None else value.items() for value in values)
        values = [tally if tally is None else [{"v": key, "n": number} for key, number in tally] for tally in tallies]
    if field.type.is_decimal:
        must_fit(field.name, values, field.type.digits)
    for member in field.entry if field.type is ColumnType.ENTRIES else ():
        if member.type.is_decimal:
            must_fit(member.name, (one.get(member.name) for some in values for one in some or ()), member.type.digits)
    return arrow_array(values, _type(field))


def must_fit(name: str, values: Iterable[str | None], digits: int) -> None:
    """Raise ValueError if a decimal, such as a sum, needs more digits than its column has."""
    for value in values:
        if value is not None and not fits_digits(value, digits):
            raise ValueError(f'"{name}" has more than the {digits} digits of its column')


def _type(field: StateField) -> pa.DataType:
    if field.type is not ColumnType.ENTRIES:
        return ARROW_TYPES[field.type]
    # in entries a time stays text
    types = [(member.name, pa.string() if member.type is ColumnType.TIME else _type(member)) for member in field.entry]
    return pa.list_(pa.struct(types))


def write_rows(writers: Sequence[BulkWriter], batches: Batches) -> Written:
    """Write all rows to every store. Raises what the writers raise; Unloadable only if there are too many such rows."""
    rows, refused = 0, []
    for writer in writers:
        keys: set[str] = set()
        rows = max(rows, _write(writer, batches, keys))
        refused.append(frozenset(keys))
    return Written(rows, tuple(refused))


def _write(writer: BulkWriter, batches: Batches, refused: set[str]) -> int:
    try:
        return writer.write(batches(refused))
    except Unloadable as error:
        log.warning("%s: looking for the rows that it refuses", error)
        return sum(_write_parts(writer, batch, refused) for batch in batches(refused))


def _write_parts(writer: BulkWriter, batch: pa.RecordBatch, refused: set[str]) -> int:
    """Write a batch without the rows that the store refuses, by halves; rows that are written again replace."""
    try:
        return writer.write(iter([batch]))
    except Unloadable:
        half = batch.num_rows // 2
        if half:
            return _write_parts(writer, batch.slice(0, half), refused) + _write_parts(
                writer, batch.slice(half), refused
            )
        if len(refused) >= MAX_REFUSED:
            raise
        refused.add(batch.column(0)[0].as_py())
        return 0
