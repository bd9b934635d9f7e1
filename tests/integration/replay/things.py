"""Two views that live in every store, and random events for them; some change two rows of one of the views."""

from __future__ import annotations

from dataclasses import replace

from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from headwater.projections.table.computations import envelope, negative, value
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add, last, nested
from headwater.projections.testing.contracts import history as history_of
from tests.contracts.fold_views import ARRIVED, LEFT, Moved, thing
from tests.contracts.view_histories import Put, Removed, Restored, Taken, some_folds

__all__ = ["by_group", "by_thing", "thing", "things"]

by_thing = some_folds("by_thing", "thing_id")
by_group = replace(
    some_folds("by_group", "group"),
    key={**dict.fromkeys((Put, Taken, Removed, Restored), "group"), Moved: ["from_group", "to_group"]},
    columns={
        **by_thing.columns,
        "text": last({Put: "text", Restored: "text", LEFT: value("left"), ARRIVED: "text"}),
        "total": add({Put: "small", Taken: negative("small"), LEFT: negative("small"), ARRIVED: "small"}),
        "here": nested(
            "thing",
            {LEFT: "thing_id", ARRIVED: "thing_id"},
            {"since": last({ARRIVED: envelope("time")})},
            deleted_by=(LEFT,),
            restored_by=(ARRIVED,),
        ),
    },
    stores=(Postgres(), Elasticsearch(), Cache(rankings=(Ranking("-total"),))),
)


def things(length: int, seed: int = 1) -> list[Source]:
    """So many random events."""
    return history_of(by_group, [Put, Taken, Removed, Restored, Moved], seed, length).sources
