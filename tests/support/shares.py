"""Rows as tasks share them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.projections.folding.tasks import Share, chunks
from headwater.projections.reading.fold_records import Rows


def share_of(rows: Sequence[Rows], buckets: int) -> Share:
    """A share of rows that are already here, by view."""
    with chunks(None, buckets) as held:
        for view, row in enumerate(rows):
            held.add(view, row)
        return held.share()
