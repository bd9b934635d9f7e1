"""Every store ignores the case of the same characters, on both sides: all that Unicode has."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from headwater.api.reading import Finder, Live
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.requests.filters import MAX_PATTERNS, folded
from headwater.api.requests.query import Query, read_query
from headwater.compose.settings import StackSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Elasticsearch, Postgres
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import last
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres
from tests.contracts.view_histories import Put

VIEW = TableView(
    name="cased",
    key="thing_id",
    columns={"text": last({Put: "text"})},
    stores=(Postgres(), Elasticsearch()),
)
LIVE = Live(VIEW, 1, VIEW.tag, {})


@cache
def cased() -> list[str]:
    """All characters of which there are others in another case."""
    return sorted(
        {
            form
            for character in map(chr, range(sys.maxunicode + 1))
            for form in (character.lower(), character.upper(), character.title(), character.casefold())
            if form != character and len(form) == 1
            for form in (form, character)
        }
    )


def asked() -> list[tuple[str, list[str]]]:
    """Each cased character, many at a time; the n-th queries have the n-th character of those that are alike."""
    rounds: dict[int, list[str]] = {}
    seen: Counter[str] = Counter()
    for character in cased():
        rounds.setdefault(seen[folded(character)], []).append(character)
        seen[folded(character)] += 1
    return [
        (operator, found[start : start + MAX_PATTERNS])
        for operator in ("ieq", "iprefix")
        for found in rounds.values()
        for start in range(0, len(found), MAX_PATTERNS)
    ]


@pytest.mark.parametrize("store_name", ["postgres", "elasticsearch"])
def test_both_sides_are_folded(store_name: str, stack: StackSettings) -> None:
    assert len(cased()) > 2_700
    endpoints, name = stack.endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, 1)
    order = VIEW.layout.monoids[0].fields[0].name
    patches = [
        Patch(f"{ord(each):07}", "0", Place(number, 0), {order: number, "text": each})
        for number, each in enumerate(cased())
    ]
    queries = asked()
    with {"postgres": OnPostgres, "elasticsearch": OnElasticsearch}[store_name](settings) as server:
        store, target = server.open(), Target(VIEW, 1)
        store.create(target, {}, {0: 0})
        store.finish(target)
        store.apply([target], {0: Batch(next_offset=len(cased()), patches={VIEW.tag: patches})})
        found = asyncio.run(answers(store_name, settings, queries))
    for (operator, characters), texts in zip(queries, found, strict=True):
        wanted = {folded(character) for character in characters}
        assert sorted(texts) == [each for each in cased() if folded(each) in wanted], (operator, characters)


async def answers(name: str, settings: StoreSettings, queries: Sequence[tuple[str, list[str]]]) -> list[list[str]]:
    async def ask(reader: Finder, query: Query) -> list[str]:
        page = await reader.find(LIVE, query)
        return [row["text"] for row in page.rows]

    asks = [
        read_query(VIEW, [*((f"text.{operator}", character) for character in characters), ("limit", "1000")])
        for operator, characters in queries
    ]
    if name == "elasticsearch":
        index = ElasticsearchReader(settings.elasticsearch, settings.environment, 1)
        await index.open()
        try:
            await index.refresh(LIVE)
            return [await ask(index, each) for each in asks]
        finally:
            await index.close()
    database = Database(settings.postgres, settings.environment)
    await database.open()
    try:
        return [await ask(PostgresReader(database, settings.environment), each) for each in asks]
    finally:
        await database.close()
