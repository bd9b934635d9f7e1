"""Searches in Elasticsearch, with texts and places of any kind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from api.cursor import continued, write_cursor
from api.ports import Live, Page
from api.query import read_query
from api.reads.elasticsearch import HIGHLIGHTED_CHARACTERS, ElasticsearchReader
from compose.settings import StackSettings
from eventlog.envelope import Envelope, Position, encode, timestamp_ms
from projections.settings import StoreSettings
from projections.stores.declared import Elasticsearch
from projections.stores.store import Batch, Target
from projections.table.expressions import Source, point
from projections.table.folds import last
from projections.table.reference import lift
from projections.table.view import TableView
from tests.contracts.opened_stores import OnElasticsearch
from tests.contracts.view_histories import Put

VIEW = TableView(
    name="searched",
    key="thing_id",
    columns={"text": last({Put: "text"}), "place": last({Put: point("latitude", "longitude")})},
    stores=(Elasticsearch(text=("text",)),),
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
        nothing = dict.fromkeys(("number", "real", "flag", "at", "tags"))
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


def searched(settings: StoreSettings, *parameters: tuple[str, str], cursor: str = "") -> Page:
    async def ask() -> Page:
        reader = ElasticsearchReader(settings.elasticsearch, settings.environment, 1)
        await reader.open()
        try:
            await reader.refresh(LIVE)
            query = read_query(VIEW, parameters, searching=True)
            return await reader.search(LIVE, continued(VIEW, query, cursor) if cursor else query)
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
