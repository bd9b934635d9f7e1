"""How two states of one row differ."""

from __future__ import annotations

from collections.abc import Set

from headwater.projections.table.monoids import State
from headwater.projections.table.shown import DELETED

Differing = tuple[State | None, State | None]
"""The values of the fields in which two states of a row differ, in each; None: there is no such row."""


def difference(
    ours: State | None,
    theirs: State | None,
    ignored: Set[str] = frozenset(),
    *,
    forgets_deleted: bool = False,
) -> Differing | None:
    """How two states differ; None if they are equal.

    ignored: fields that do not count. forgets_deleted: the log may no longer have a row that was
    deleted, as that of a captured table does once its topic is compacted.
    """
    if ours is None or theirs is None:
        present = theirs if ours is None else ours
        is_same = present is None or (forgets_deleted and bool(present.get(DELETED)))
        return None if is_same else (ours, theirs)
    if ours == theirs:
        return None
    every = sorted({*ours, *theirs} - ignored)
    names = [name for name in every if ours.get(name) != theirs.get(name)]
    return ({each: ours.get(each) for each in names}, {each: theirs.get(each) for each in names}) if names else None
