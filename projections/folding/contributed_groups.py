"""The groups of folded contributions, in views over rows of captured tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

from headwater.projections.folding.combining import Combined, Item
from headwater.projections.limits import ENTRIES_IN_MEMORY, ROWS_IN_MEMORY
from headwater.projections.reading.fold_records import Rows
from headwater.projections.reading.program import Program
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State

ENTRY_BYTES: Final = 20
"""Of a value in a tally, about."""


@contextmanager
def grouped(program: Program, rows: Combined) -> Iterator[Callable[[], Iterator[Item]]]:
    """A function that returns all rows that are stored: the given ones, and if they are contributions, their groups.

    rows: all that change common groups.
    """
    retraction = program.retraction
    if retraction is None:
        yield rows.items
        return
    names = [field.name for field in program.fields]
    with Combined(program) as groups:
        held: dict[str, State] = {}
        read = 0
        for _, row in rows.items():
            found = retraction.group(dict(zip(names, row, strict=True)))
            if found is not None:
                key, adds = found
                retraction.merge(held.setdefault(key, {DELETED: False}), adds)
                read += 1
            if len(held) > ROWS_IN_MEMORY or read > ENTRIES_IN_MEMORY:
                groups.add(_rows(held, names), read * ENTRY_BYTES, None)
                held, read = {}, 0
        groups.add(_rows(held, names), read * ENTRY_BYTES, None)
        yield lambda: chain(rows.items(), groups.items())


def _rows(states: dict[str, State], names: Sequence[str]) -> Rows:
    return {key: [state.get(name) for name in names] for key, state in states.items()}
