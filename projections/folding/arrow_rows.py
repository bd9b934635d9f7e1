"""Folded rows as Arrow batches, in the form that bulk writers take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from projections.folding.compiled import Program
from projections.folding.folder import Row
from projections.folding.lists import entries
from projections.stores.arrow import ARROW_TYPES, arrow_array
from projections.table.monoids import StateField
from projections.table.types import ColumnType

BATCH_ROWS: Final = 10_000
BATCH_ENTRIES: Final = 100_000
"""Entries of their lists, about."""


def batches(program: Program, items: Iterable[tuple[str, Row]]) -> Iterator[pa.RecordBatch]:
    """Rows in batches: the key, then every state field by name. items: each key with its row."""
    schema = pa.schema([(program.key_name, pa.string()), *((each.name, _type(each)) for each in program.fields)])
    for some in _in_batches(program, items):
        keys = pa.array([key for key, _ in some], pa.string())
        columns = [_column(field, at, [row for _, row in some]) for at, field in enumerate(program.fields)]
        yield pa.RecordBatch.from_arrays([keys, *columns], schema=schema)


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
