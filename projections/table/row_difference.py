"""How two states of one row differ, in whatever form they were stored."""

from __future__ import annotations

from collections.abc import Set
from copy import deepcopy

from projections.table.json_text import JsonTexts, make_canonical
from projections.table.monoids import State
from projections.table.shown import DELETED

Differing = tuple[State | None, State | None]
"""The values of the fields in which two states of a row differ, in each; None: there is no such row."""


def difference(
    ours: State | None,
    theirs: State | None,
    texts: JsonTexts,
    ignored: Set[str] = frozenset(),
    *,
    forgets_deleted: bool = False,
) -> Differing | None:
    """How two states differ; None if they are equal.

    texts: see Layout. ignored: fields that do not count. forgets_deleted: the log may no longer have a row that was
    deleted, as that of a captured table does once its topic is compacted.
    """
    if ours is None or theirs is None:
        present = theirs if ours is None else ours
        is_same = present is None or (forgets_deleted and bool(present.get(DELETED)))
        return None if is_same else (ours, theirs)
    if ours == theirs:
        return None
    ours, theirs = (_canonical(each, texts) for each in (ours, theirs))
    every = sorted({*ours, *theirs} - ignored)
    names = [name for name in every if ours.get(name) != theirs.get(name)]
    return ({each: ours.get(each) for each in names}, {each: theirs.get(each) for each in names}) if names else None


def _canonical(row: State, texts: JsonTexts) -> State:
    """The row with its JSON texts in one form: earlier releases stored those of patches as Spark writes them."""
    if not texts:
        return row
    copied = deepcopy(row)
    make_canonical(copied, texts)
    return copied
