"""What may change in a declaration without a new version of the view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from headwater import Cache, Elasticsearch, Lookup, Postgres, Ranking, TableView, Topic, count, field, last, maximum
from headwater.commands.declaring.filled_fields import Claim
from headwater.projections.generations.registry.generation import Generation, has_declaration_of, has_rows_of
from headwater.projections.table.declared_store import DeclaredStore
from tests.contracts.view_histories import Put, Removed, Restored, Taken
from tests.unit.replay.played import generation

VIEW: Final = TableView(
    name="things",
    key="thing_id",
    columns={"text": last({Put: "text"}), "number": last({Put: "number"}), "puts": count(Put)},
    deleted_by=(Removed, Taken),
    restored_by=(Restored,),
    stores=(Postgres(indexes=(("text",),)), Elasticsearch(text=("text",)), Cache(rankings=(Ranking("-number"),))),
)
POSTGRES, ELASTICSEARCH, CACHE = VIEW.stores


def stored(*stores: DeclaredStore) -> TableView:
    return replace(VIEW, stores=stores)


FREE: Final[dict[str, Callable[[], TableView]]] = {
    "doc": lambda: replace(VIEW, doc="Things."),
    "order of columns": lambda: replace(VIEW, columns=dict(reversed(list(VIEW.columns.items())))),
    "order of events": lambda: replace(VIEW, deleted_by=(Taken, Removed)),
    "order of stores": lambda: stored(CACHE, POSTGRES, ELASTICSEARCH),
    "another index": lambda: stored(Postgres(indexes=(("-puts", "text"),)), ELASTICSEARCH, CACHE),
    "no index": lambda: stored(Postgres(), ELASTICSEARCH, CACHE),
    "facets": lambda: stored(POSTGRES, Elasticsearch(text=("text",), facets=("number",)), CACHE),
    "readable_by": lambda: replace(VIEW, readable_by={"text": Claim("sub")}),
    "lookups": lambda: replace(VIEW, lookups=(Lookup("others", on="text", columns={"other": "name"}),)),
}
REBUILT: Final[dict[str, Callable[[], TableView]]] = {
    "another column": lambda: replace(VIEW, columns={**VIEW.columns, "most": maximum({Put: "number"})}),
    "no column": lambda: replace(VIEW, columns={"text": VIEW.columns["text"], "number": VIEW.columns["number"]}),
    "another event": lambda: replace(VIEW, columns={**VIEW.columns, "puts": count(Put, Taken)}),
    "another event that deletes": lambda: replace(VIEW, deleted_by=(Removed,)),
    "an event that restores, and does not delete": lambda: replace(VIEW, deleted_by=(Removed,), restored_by=(Taken,)),
    "where": lambda: replace(VIEW, where={Put: field("flag")}),
    "text": lambda: stored(POSTGRES, Elasticsearch(text=()), CACHE),
    "another ranking": lambda: stored(POSTGRES, ELASTICSEARCH, Cache(rankings=(Ranking("puts", within=("text",)),))),
    "no ranking": lambda: stored(POSTGRES, ELASTICSEARCH, Cache()),
    "another store": lambda: stored(*VIEW.stores, Topic()),
    "no Postgres": lambda: stored(ELASTICSEARCH, CACHE),
    "no Cache": lambda: stored(POSTGRES, ELASTICSEARCH),
    "the name of the key": lambda: replace(VIEW, key_name="id"),
    "the key": lambda: replace(VIEW, key="group", key_name="thing_id"),
}


def built(view: TableView) -> Generation:
    return generation(
        view.name, 1, "live", declaration=view.declaration, row_types=view.row_types, fingerprint=view.fingerprint
    )


@pytest.mark.parametrize("change", FREE)
def test_it_needs_no_version(change: str) -> None:
    changed = FREE[change]()
    for before, after in ((VIEW, changed), (changed, VIEW)):
        live = built(before)
        assert has_declaration_of(live, after)
        assert has_rows_of(live, replace(after, version=2).declaration)


@pytest.mark.parametrize("change", REBUILT)
def test_it_needs_a_version(change: str) -> None:
    changed = REBUILT[change]()
    for before, after in ((VIEW, changed), (changed, VIEW)):
        assert not has_declaration_of(built(before), after)
