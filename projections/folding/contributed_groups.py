"""The groups of folded contributions, in views over rows of captured tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain

from projections.folding.combining import Combined, Item
from projections.folding.program import Program
from projections.folding.states import States
from projections.limits import ROWS_IN_MEMORY
from projections.table.patch import Patch, Place


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
        states = States(program)
        for _, row in rows.items():
            found = retraction.group(dict(zip(names, row, strict=True)))
            if found is not None:
                key, adds = found
                states.add([Patch(key, "", Place(0, 0), adds)])
            if len(states) > ROWS_IN_MEMORY:
                groups.add(states.drain(), 0, None)
        groups.add(states.drain(), 0, None)
        yield lambda: chain(rows.items(), groups.items())
