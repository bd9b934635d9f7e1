"""Monoids as bulk tasks combine by them: what does not fit into a column is found when its row is written."""

from __future__ import annotations

from dataclasses import replace

from headwater.projections.table.monoids.entries import Keyed
from headwater.projections.table.monoids.monoid import Monoid
from headwater.projections.table.monoids.scalars import DecimalSum


def in_bulk(monoid: Monoid) -> Monoid:
    """The monoid with sums that may have too many digits: raising would end a task with all its other rows."""
    match monoid:
        case DecimalSum():
            return replace(monoid, is_bounded=False)
        case Keyed():
            return replace(monoid, monoids=tuple(map(in_bulk, monoid.monoids)))
        case _:
            return monoid
