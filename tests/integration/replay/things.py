"""Two views that live in every store, and random events for them."""

from __future__ import annotations

from dataclasses import replace

from projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from projections.table.expressions import Source
from projections.testing.histories import history as history_of
from tests.contracts.view_histories import Put, Removed, Restored, Taken, some_folds, thing

__all__ = ["by_group", "by_thing", "thing", "things"]

by_thing = some_folds("by_thing", "thing_id")
by_group = replace(
    some_folds("by_group", "group"), stores=(Postgres(), Elasticsearch(), Cache(rankings=(Ranking("-total"),)))
)


def things(length: int, seed: int = 1) -> list[Source]:
    """So many random events."""
    return history_of(by_group, [Put, Taken, Removed, Restored], seed, length).sources
