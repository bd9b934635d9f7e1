"""Pages of large rows: each store ends them early, and the next page continues there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headwater.api import reading as parts
from headwater.api.limits import MAX_PAGE_BYTES
from headwater.api.reading import Finder, Live
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.api.requests.query import MAX_ROWS, RELEVANCE, Order, Query
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import some_folds
from tests.integration.api.api_deployment import Deployment
from tests.integration.api.api_rows import SOURCES, expected, load, load_sellers
from tests.support.table_views import table_views

LARGE, ROW_BYTES = 300, 100_000
VIEW = replace(some_folds("large_rows", "thing_id"), stores=(Postgres(),))
FILL = """INSERT INTO {table} ({key}, text) SELECT lpad(n::text, 4, '0'), repeat('x', {size})
          FROM generate_series(1, {rows}) n"""


async def every_row(reader: Finder, live: Live, query: Query) -> list[Sequence[dict[str, Any]]]:
    """The rows of each page."""
    pages: list[Sequence[dict[str, Any]]] = []
    while True:
        page = await reader.find(live, query)
        pages.append(page.rows)
        if page.last is None:
            return pages
        query = replace(query, beyond=tuple(page.last))


def test_a_page_of_large_rows_of_postgresql_ends_early(deployment: Deployment) -> None:
    with closing(open_store("postgres", deployment.stores)) as store:
        target = Target(VIEW, 1)
        store.create(target, {}, {0: 0})
        table = sql.Identifier(deployment.stores.environment, table_name(VIEW.name, target.generation))
        with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
            size, rows, key = sql.Literal(ROW_BYTES), sql.Literal(LARGE), sql.Identifier(VIEW.key_name)
            connection.execute(sql.SQL(FILL).format(table=table, key=key, size=size, rows=rows))
        store.finish(target)

    async def main() -> None:
        database = Database(deployment.stores.postgres, deployment.stores.environment, connections=1)
        await database.open()
        reader, live = PostgresReader(database, deployment.stores.environment), Live(VIEW, 1, VIEW.tag, {})
        try:
            pages = await every_row(reader, live, Query((), (Order(VIEW.key_name),), MAX_ROWS))
            assert [len(rows) for rows in pages[:-1]] == [MAX_PAGE_BYTES // ROW_BYTES + 1] * (len(pages) - 1)
            keys = [row[VIEW.key_name] for rows in pages for row in rows]
            assert keys == [f"{number:04}" for number in range(1, LARGE + 1)]
            few = await reader.find(live, Query((), (Order(VIEW.key_name),), 5))
            assert [len(few.rows), few.last] == [5, ["0005"]]
            assert await database.rows(sql.Composed([sql.SQL("SELECT 1")])) == [(1,)]  # the connection is usable
        finally:
            await database.close()

    asyncio.run(main())


def test_pages_of_elasticsearch_are_read_in_parts_and_end_early(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = table_views()["listing_search"]
    target = load(deployment, "listing_search", SOURCES)
    rows = sorted(expected("listing_search").values(), key=lambda row: row["listing_id"].encode())
    by_key = Query((), (Order(view.key_name),), MAX_ROWS)

    async def main() -> None:
        reader = ElasticsearchReader(deployment.stores.elasticsearch, deployment.stores.environment, 4)
        await reader.open()
        try:
            live = Live(view, target.generation, view.tag, {})
            await reader.refresh(live)
            monkeypatch.setattr(parts, "FIRST_ROWS", 7)
            (whole,) = await every_row(reader, live, by_key)
            assert whole == rows
            text = replace(by_key, text="condo", order=(Order(RELEVANCE, True), *by_key.order), highlight=True)
            found = await reader.search(live, text)
            assert (found.total, len(found.rows), len(found.matches)) == (len(rows), len(rows), len(rows))
            assert found.facets
            assert [match["score"] for match in found.matches] == sorted(
                (match["score"] for match in found.matches), reverse=True
            )
            monkeypatch.setattr(parts, "MAX_PAGE_BYTES", 1_000)
            pages = await every_row(reader, live, by_key)
            assert len(pages) > len(rows) // 7
            assert [row for page in pages for row in page] == rows
        finally:
            await reader.close()

    asyncio.run(main())


def test_pages_of_a_ranking_are_read_in_parts_and_end_early(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    cents = {f"p{number}": number % 5 for number in range(40)}
    target = load_sellers(deployment, cents)
    leaders = sorted(cents, key=lambda key: (-cents[key], key))
    view = target.view
    query = Query((), (Order("cents", descending=True), Order(view.key_name)), MAX_ROWS, count=True)

    async def main() -> None:
        reader = ValkeyReader(deployment.stores.valkey, deployment.stores.environment)
        live = Live(view, target.generation, target.tag, {})
        try:
            monkeypatch.setattr(parts, "FIRST_ROWS", 7)
            page = await reader.find(live, query)
            assert [row["product"] for row in page.rows] == leaders
            assert (page.last, page.total) == (None, len(leaders))
            monkeypatch.setattr(parts, "MAX_PAGE_BYTES", 200)
            pages = await every_row(reader, live, query)
            assert len(pages) > len(leaders) // 7
            assert [row["product"] for rows in pages for row in rows] == leaders
        finally:
            await reader.close()

    asyncio.run(main())
