"""Views as parameters of contract tests, of which some decide and the others are of the complete suite."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import pytest

from headwater.projections.view import View
from tests.contracts.counted_views import EDGES_PER_TOWN, PER_TOWN
from tests.contracts.exact_views import EXACT_BY_GROUP
from tests.contracts.fold_views import BETWEEN_GROUPS, BY_SKU, LISTS_BY_GROUP
from tests.contracts.view_histories import BY_GROUP, BY_THING

KINDS: Final = tuple(
    view.name
    for view in (
        *(BY_THING, BY_GROUP, LISTS_BY_GROUP, BY_SKU, BETWEEN_GROUPS, EXACT_BY_GROUP),
        *(PER_TOWN, EDGES_PER_TOWN),
    )
)
"""Together they have each kind of fold and of column; the others have them under other keys, and in other pairs."""


def of_views(views: Iterable[View], deciding: Collection[str]) -> list[pytest.ParameterSet]:
    """Views by their names; those that are not in `deciding` are of the complete suite."""
    return [pytest.param(view, id=view.name, marks=_mark(view.name in deciding)) for view in views]


def of_stores(stores: Iterable[str], views: Iterable[View], whole: Collection[str]) -> list[pytest.ParameterSet]:
    """Pairs of a store and a view. whole: stores in which all views decide; in the others, KINDS do."""
    return [
        pytest.param(store, view, id=f"{store}-{view.name}", marks=_mark(store in whole or view.name in KINDS))
        for store in stores
        for view in views
    ]


def seeds(number: int) -> list[pytest.ParameterSet]:
    """Seeds, of which the first decides."""
    return [pytest.param(seed, id=str(seed), marks=_mark(seed == 0)) for seed in range(number)]


def _mark(decides: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if decides else (pytest.mark.complete,)
