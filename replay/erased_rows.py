"""The rows of views that erased events had changed: they are folded again without these events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS
from headwater.projections.view import View
from headwater.replay.deployment import Deployment
from headwater.replay.erasing import Target
from headwater.replay.outcome import KNOWN
from headwater.replay.progress import OnStep, steps
from headwater.replay.row import fold_rows

MAX_KEYS: Final = 200
"""Rows of one view that are folded again; with more, a rebuild is as good."""


@dataclass(frozen=True)
class RowsWithout:
    """What became of one view.

    rows: how many rows of it the events had changed; None: the events do not tell. replaced: how many of these were
    replaced in at least one store. left: why the view must be rebuilt; empty if it need not be.
    """

    view: str
    rows: int | None = None
    replaced: int = 0
    left: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def fold_without(deployment: Deployment, views: Iterable[View], erased: Target) -> list[RowsWithout]:
    """Fold the rows of erased events again, in every live view; a failure of one view does not stop the others."""
    with steps() as on_step:
        return [_of_view(deployment, view, erased, on_step) for view in views]


def _of_view(deployment: Deployment, view: View, erased: Target, on_step: OnStep) -> RowsWithout:
    if view.has_own_query:
        return RowsWithout(view.name, left="Spark computes its rows")
    keys = _keys(view, erased)
    if keys is None:
        return RowsWithout(view.name, left="the events do not tell which rows they changed")
    if len(keys) > MAX_KEYS:
        return RowsWithout(view.name, len(keys), left=f"the events changed {len(keys):,} rows")
    if not keys:
        return RowsWithout(view.name, 0)
    last = max(each.offset for each in erased.stored)
    after = {source_id(EVENTS, erased.events.partition): last}
    try:
        found = fold_rows(
            deployment, view, keys, [each.name for each in view.stores], on_step, write=True, after=after
        ).rows
    except KNOWN as error:
        return RowsWithout(view.name, len(keys), left=str(error))
    replaced = {each.key for each in found if each.outcome == "replaced"}
    unsure = sorted({each.store for each in found if each.outcome == "undecided"})
    left = f"{', '.join(unsure)} did not apply the events, or kept changing the rows" if unsure else ""
    return RowsWithout(view.name, len(keys), len(replaced), left)


def _keys(view: View, erased: Target) -> Sequence[str] | None:
    """The rows that the events changed; None if they do not tell."""
    if not erased.stored:  # erased earlier, and compaction has removed them since
        return None
    keys = dict[str, None]()
    for each in erased.stored:
        rows = None if each.envelope is None else view.rows_of(each.envelope)
        if rows is None:
            return None
        keys |= dict.fromkeys(rows)
    return list(keys)
