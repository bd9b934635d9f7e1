"""Searches in Elasticsearch, with texts and places of any kind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headwater.api.reading import Live, Page
from headwater.api.reads.elasticsearch import HIGHLIGHTED_CHARACTERS, ElasticsearchReader
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import continued, read_query, write_cursor
from headwater.commands.declaring.filled_fields import Claim
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.projections.generations.registry.generation import has_declaration_of, has_rows_of
from headwater.projections.reading.reader import lift
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Elasticsearch
from headwater.projections.stores.elasticsearch.schema import mapping
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.computations import point
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import OnElasticsearch
from tests.contracts.view_histories import Put
from tests.unit.replay.played import generation

VIEW = TableView(
    name="searched",
    key="thing_id",
    columns={
        "text": last({Put: "text"}),
        "number": last({Put: "number"}),
        "place": last({Put: point("latitude", "longitude")}),
    },
    stores=(Elasticsearch(text=("text",), facets=("number", "thing_id")),),
)
LIVE = Live(VIEW, 1, VIEW.tag, {})
TEXTS = {
    "short": "a needle",
    "long": "needle " + "hay " * (HIGHLIGHTED_CHARACTERS // 4),
    "late": "hay " * (HIGHLIGHTED_CHARACTERS // 4 + 10) + "needle",
}


@pytest.fixture(scope="module")
def settings(stack: StackSettings) -> Iterator[StoreSettings]:
    """Elasticsearch with a row for each text; only the short one has a place."""
    endpoints = stack.endpoints
    name = f"t_{uuid.uuid4().hex[:12]}"
    made = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, 1)
    batch = Batch(next_offset=len(TEXTS))
    for number, (key, text) in enumerate(TEXTS.items()):
        place = {"latitude": 38.5, "longitude": -121.0} if key == "short" else {"latitude": None, "longitude": None}
        nothing = {"number": number} | dict.fromkeys(("real", "flag", "at", "tags"))
        body = {"thing_id": key, "group": "g", "small": 1, "text": text, **nothing, **place}
        time = datetime(2026, 1, 1, tzinfo=UTC)
        event = Envelope(f"thing/{key}/1", "thing.put", f"thing/{key}", time, body, sequence=1)
        source = Source(event, Position(0, number), timestamp_ms(time), encode(event).decode())
        batch.patches.setdefault(VIEW.tag, []).extend(lift(VIEW, source))
    with OnElasticsearch(made) as server:
        store, target = server.open(), Target(VIEW, 1)
        store.create(target, {}, {0: 0})
        store.finish(target)
        store.apply([target], {0: batch})
        yield made


def searched(settings: StoreSettings, *parameters: tuple[str, str], cursor: str = "", live: Live = LIVE) -> Page:
    async def ask() -> Page:
        reader = ElasticsearchReader(settings.elasticsearch, settings.environment, 1)
        await reader.open()
        try:
            await reader.refresh(LIVE)
            query = read_query(VIEW, parameters, searching=True)
            return await reader.search(live, continued(VIEW, query, cursor) if cursor else query)
        finally:
            await reader.close()

    return asyncio.run(ask())


def test_a_text_is_highlighted_as_far_as_elasticsearch_analyses_it(settings: StoreSettings) -> None:
    page = searched(settings, ("q", "needle"), ("highlight", "true"), ("sort", "thing_id"), ("fields", "thing_id"))
    assert [row["thing_id"] for row in page.rows] == ["late", "long", "short"]
    late, long, short = (match["highlights"] for match in page.matches)
    assert late == {}
    assert short == {"text": ["a <em>needle</em>"]}
    assert long["text"][0].startswith("<em>needle</em> hay")


def test_a_row_without_a_place_is_last_and_has_no_distance(settings: StoreSettings) -> None:
    page = searched(settings, ("near", "38.5,-121"), ("fields", "thing_id"))
    assert [row["thing_id"] for row in page.rows] == ["short", "late", "long"]
    assert [match["distance_km"] for match in page.matches] == [0.0, None, None]


@pytest.mark.parametrize("order", ["distance", "-distance", "-relevance", "relevance,-distance", "thing_id"])
def test_pages_of_a_search_have_each_row_once(settings: StoreSettings, order: str) -> None:
    parameters = (("q", "needle"), ("near", "38.5,-121"), ("sort", order), ("limit", "1"))
    query = read_query(VIEW, parameters, searching=True)
    found, cursor = list[str](), ""
    while True:
        page = searched(settings, *parameters, cursor=cursor)
        found += [str(row["thing_id"]) for row in page.rows]
        if page.last is None:
            break
        cursor = write_cursor(VIEW, query, page.last)
    assert sorted(found) == sorted(TEXTS)
    whole = searched(settings, *parameters[:-1])
    assert found == [row["thing_id"] for row in whole.rows]


def test_a_reader_finds_and_counts_its_own_rows_only(settings: StoreSettings) -> None:
    view = replace(VIEW, readable_by={"number": Claim("team")})
    asked = (("q", "needle"), ("highlight", "true"), ("fields", "thing_id"))

    def of(*numbers: int) -> Page:
        live = replace(LIVE, view=view, readable=(Filter("number", "in", numbers),))
        return searched(settings, *asked, live=live)

    page = of(0)
    assert ([row["thing_id"] for row in page.rows], page.total) == (["short"], 1)
    assert page.facets == {"number": [(0, 1)], "thing_id": [("short", 1)]}
    assert page.matches[0]["highlights"] == {"text": ["a <em>needle</em>"]}
    none = of()
    assert (none.rows, none.total, none.facets) == ([], 0, {"number": [], "thing_id": []})
    nobody = searched(settings, *asked, live=replace(LIVE, view=view))
    assert (nobody.rows, nobody.total) == ([], 0)


def test_a_score_does_not_tell_how_often_a_word_is_in_rows_of_others(settings: StoreSettings) -> None:
    view = replace(VIEW, readable_by={"number": Claim("team")})

    def scores(word: str, readable: tuple[Filter, ...]) -> set[float]:
        page = searched(settings, ("q", word), live=replace(LIVE, view=view, readable=readable))
        return {match["score"] for match in page.matches}

    own = (Filter("number", "in", (1,)),)
    assert scores("needle", own) == scores("hay", own) == {1.0}
    assert scores("needle", ()) != scores("hay", ()), "else the test could not fail"


def test_facets_that_are_declared_later_count_the_rows_of_the_live_generation(settings: StoreSettings) -> None:
    def view_with(*facets: str) -> TableView:
        return replace(VIEW, stores=(Elasticsearch(text=("text",), facets=facets),))

    built, later = view_with("number"), view_with("text", "thing_id")
    live = generation(
        VIEW.name, 1, "live", declaration=built.declaration, row_types=built.row_types, fingerprint=built.fingerprint
    )
    assert has_declaration_of(live, later), "it needs no new version"
    assert has_rows_of(live, replace(later, version=2).declaration), "`replay diff` compares it with a later one"
    assert not has_declaration_of(live, replace(VIEW, stores=(Elasticsearch(text=(), facets=("number",)),)))
    assert mapping(later) == mapping(built)
    page = searched(settings, ("near", "38.5,-121"), live=Live(later, 1, VIEW.tag, {}))
    assert page.facets is not None
    assert sorted(page.facets["thing_id"]) == [("late", 1), ("long", 1), ("short", 1)]
    assert ("a needle", 1) in page.facets["text"]
