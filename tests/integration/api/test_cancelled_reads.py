"""Reads that are cancelled because a client left: the next ones on the same connections have their own answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from headwater.api.reading import Live, Row, ViewReader
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader
from tests.integration.api.api_deployment import Deployment
from tests.integration.api.api_rows import SOURCES, expected, load

ROUNDS, AT_ONCE = 300, 8
VIEWS = {"postgres": "listings", "elasticsearch": "listing_search", "valkey": "listing_card"}


@pytest.mark.complete
@pytest.mark.parametrize("store", VIEWS)
def test_a_cancelled_read_leaves_no_answer_behind(deployment: Deployment, store: str) -> None:
    view = VIEWS[store]
    target, rows = load(deployment, view, SOURCES), expected(view)
    live = Live(target.view, target.generation, target.view.tag, {})
    chance = random.Random(5)
    keys = sorted(rows)

    async def read(ask: Callable[[str], Awaitable[Row | None]], key: str, for_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                assert await ask(key) == rows[key]

    async def main() -> None:
        database = Database(deployment.stores.postgres, deployment.stores.environment, connections=2)
        elasticsearch = ElasticsearchReader(deployment.stores.elasticsearch, deployment.stores.environment, 4)
        cache = ValkeyReader(deployment.stores.valkey, deployment.stores.environment)
        readers: dict[str, ViewReader] = {
            "postgres": PostgresReader(database, deployment.stores.environment),
            "elasticsearch": elasticsearch,
            "valkey": cache,
        }
        reader = readers[store]

        async def one(key: str) -> Row | None:
            return (await reader.get_many(live, [key])).get(key)

        async def several(key: str) -> Row | None:
            return (await reader.get_many(live, [key, "none"])).get(key)

        await database.open()
        await elasticsearch.open()
        try:
            for _ in range(ROUNDS):
                asked = chance.sample(keys, AT_ONCE)
                await asyncio.gather(
                    *(read(chance.choice((one, several)), key, chance.random() / 200) for key in asked)
                )
                key = chance.choice(keys)
                assert await one(key) == await several(key) == rows[key]
        finally:
            await cache.close()
            await elasticsearch.close()
            await database.close()

    asyncio.run(main())
