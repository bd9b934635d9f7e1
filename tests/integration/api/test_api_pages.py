"""Pages of a large table: PostgreSQL reads few rows for each, however far it is from the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import sql
from psycopg.sql import Composed

from headwater.api.reading import Live
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import Order, Query
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import some_folds
from tests.integration.api.api_deployment import Deployment

Answer = TypeVar("Answer")

ROWS, LIMIT = 20_000, 10
VIEW = replace(
    some_folds("paged", "thing_id"), stores=(Postgres(indexes=(("total",), ("-total",), ("text", "-total"))),)
)
BY_KEY = (Order(VIEW.key_name),)
QUERIES = {
    "by key": Query((), BY_KEY, LIMIT),
    "ascending": Query((), (Order("total"), *BY_KEY), LIMIT),
    "descending": Query((), (Order("total", descending=True), *BY_KEY), LIMIT),
    "of one text": Query((Filter("text", "in", ("3",)),), (Order("total", descending=True), *BY_KEY), LIMIT),
}
FILL = """INSERT INTO {table} ({key}, text, total)
          SELECT 'k' || n, n % 7, CASE WHEN n % 200 > 0 THEN n * 7919 % 1000 END FROM generate_series(1, {rows}) n"""


class Watched(Database):
    """A database that counts the rows that PostgreSQL reads."""

    read: float = 0

    async def first_rows(
        self, statement: Composed, values: Sequence[Any], limit: int, budget_bytes: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        explain = Composed([sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) "), statement])
        (((plan,),),) = await self.rows(explain, values)
        self.read = sum(_read(plan["Plan"]))
        return await super().first_rows(statement, values, limit, budget_bytes)


def _read(node: dict[str, Any]) -> Iterator[float]:
    """The rows that each scan looks at."""
    if "Scan" in node["Node Type"]:
        yield (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    for each in node.get("Plans", ()):
        yield from _read(each)


@pytest.fixture(scope="module")
def live(deployment: Deployment) -> Live:
    with closing(open_store("postgres", deployment.stores)) as store:
        target = Target(VIEW, 1)
        store.create(target, {}, {0: 0})
        table = sql.Identifier(deployment.stores.environment, table_name(VIEW.name, target.generation))
        with psycopg.connect(deployment.stores.postgres, autocommit=True) as connection:
            key = sql.Identifier(VIEW.key_name)
            connection.execute(sql.SQL(FILL).format(table=table, key=key, rows=sql.Literal(ROWS)))
        store.finish(target)
    return Live(VIEW, 1, VIEW.tag, {})


def reading(deployment: Deployment, ask: Callable[[PostgresReader, Watched], Awaitable[Answer]]) -> Answer:
    async def main() -> Answer:
        database = Watched(deployment.stores.postgres, deployment.stores.environment)
        await database.open()
        try:
            return await ask(PostgresReader(database, deployment.stores.environment), database)
        finally:
            await database.close()

    return asyncio.run(main())


@pytest.mark.parametrize("name", QUERIES)
def test_a_page_reads_few_rows_wherever_it_begins(deployment: Deployment, live: Live, name: str) -> None:
    query = QUERIES[name]

    async def ask(reader: PostgresReader, database: Watched) -> None:
        whole = (await reader.find(live, replace(query, limit=ROWS))).rows
        for place in (0, 1, len(whole) // 2, len(whole) * 399 // 400):  # the last one among nulls
            before = (await reader.find(live, replace(query, limit=place))).last if place else None
            page = await reader.find(live, replace(query, beyond=None if before is None else tuple(before)))
            assert page.rows == whole[place : place + LIMIT]
            assert 0 < database.read < ROWS / 10

    reading(deployment, ask)
