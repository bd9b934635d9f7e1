"""Writes folded rows to the stores of a view, and finds the rows that a store refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from headwater.projections.errors import Unloadable
from headwater.projections.limits import MAX_REFUSED
from headwater.projections.stores.store import BulkWriter

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


Batches = Callable[[set[str]], Iterator["pa.RecordBatch"]]
"""The rows from the beginning; the argument receives the keys of those that no batch can hold."""


class Written(NamedTuple):
    """Rows that were written. refused: by writer, the keys of those that its store refused, which are not written."""

    rows: int = 0
    refused: tuple[frozenset[str], ...] = ()


def together(several: Iterable[Written]) -> Written:
    """What several tasks wrote."""
    rows, refused = 0, tuple[frozenset[str], ...]()
    for each in several:
        rows += each.rows
        refused = tuple(a | b for a, b in zip_longest(refused, each.refused, fillvalue=frozenset[str]()))
    return Written(rows, refused)


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
