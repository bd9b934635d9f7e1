"""A page that one store began, another continues: every row comes once, in one order, also at the ends of its type."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from headwater.api.reading import Finder, Live, NotRanked
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.api.requests.query import Query, continued, read_query, write_cursor
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.eventlog.integers import HIGHEST, LOWEST
from headwater.projections.reading.reader import fold, lift, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from headwater.projections.stores.open import compared_of
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from headwater.replay.comparison import compare
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey
from tests.contracts.test_view_stores import arrow
from tests.contracts.view_histories import Put
from tests.support.seeds import seed_of

COLUMNS = ("text", "number", "real", "flag", "at", "price", "due", "reference")
VIEW = TableView(
    name="paged",
    key="thing_id",
    columns={name: last({Put: name}) for name in COLUMNS},
    stores=(
        Postgres(),
        Elasticsearch(text=("text",)),
        Cache(rankings=tuple(map(Ranking, ("-number", "number", "real", "-at", "-price", "due")))),
    ),
)
LIVE = Live(VIEW, 1, VIEW.tag, {})
VALUES: Mapping[str, tuple[Any, ...]] = {
    "text": (None, "", "a", "B", "é", "\U0001f600", "￿"),
    "number": (None, LOWEST, LOWEST + 1, -(2**53) - 1, -1, 0, 1, 2**53 + 1, HIGHEST - 1, HIGHEST),
    "real": (None, -1.7976931348623157e308, -5e-324, -0.0, 0.0, 5e-324, 1e22, 1.7976931348623157e308),
    "flag": (None, True, False),
    "at": (
        None,
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "2026-01-01T00:00:00.001Z",
        "9999-12-31T23:59:59.999Z",
    ),
    "price": (None, "-9999999999.99", "-0.01", "0.00", "9007199254.92", "9007199254.93", "9999999999.99"),
    "due": (None, "0001-01-01", "1969-12-31", "2026-03-01", "9999-12-31"),
    "reference": (None, *(str(UUID(int=each)) for each in (0, 2**127, 2**128 - 1))),
}
ORDERS = tuple(
    order for name in COLUMNS for order in (name, f"-{name}", f"{name},-number", f"-flag,{name}")
    if order.count("flag") < 2 and order.count("number") < 2
)  # fmt: skip
DECIDING = {*COLUMNS, "-number", "-real", "text,-number", "-flag,price"}
"""Each column, each way to compare falling values, and orders by two columns."""


def sources() -> list[Source]:
    """Rows of random values, so that many are equal; and one whose key no path of a URL carries."""
    chance, found = random.Random(5), list[Source]()
    for key in (".", "..", *(f"{number:03}" for number in range(60))):
        values = {name: chance.choice(value) for name, value in VALUES.items()}
        body = {"thing_id": key, "group": "g", "small": 1, "tags": None, "latitude": None, "longitude": None, **values}
        time = datetime(2026, 1, 1, tzinfo=UTC)
        event = Envelope(f"thing/{key}/1", "thing.put", f"thing/{key}", time, body, sequence=1)
        found.append(Source(event, Position(0, len(found)), timestamp_ms(time), encode(event).decode()))
    return found


SOURCES = sources()
ROWS = fold(VIEW, SOURCES)


@pytest.fixture(scope="module")
def settings(stack: StackSettings) -> Iterator[StoreSettings]:
    """All stores, each with the rows: generation 1 from patches, generation 2 in bulk."""
    endpoints, name = stack.endpoints, f"t_{uuid.uuid4().hex[:12]}"
    made = StoreSettings(name, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, 1)
    batch = Batch(next_offset=len(SOURCES))
    batch.patches[VIEW.tag] = [patch for source in SOURCES for patch in lift(VIEW, source)]
    with ExitStack() as opened:
        for kind in (OnPostgres, OnElasticsearch, OnValkey):
            store = opened.enter_context(kind(made)).open()
            for target in (Target(VIEW, 1), Target(VIEW, 2)):
                store.create(target, {}, {0: 0})
                if target.generation == 2:
                    store.bulk_writer(target).write(iter([arrow(VIEW, states(VIEW, SOURCES))]))
                store.finish(target)
            store.apply([Target(VIEW, 1)], {0: batch})
        yield made


async def opened_readers(settings: StoreSettings, opened: AsyncExitStack) -> list[Finder]:
    database = Database(settings.postgres, settings.environment)
    await database.open()
    opened.push_async_callback(database.close)
    index = ElasticsearchReader(settings.elasticsearch, settings.environment, 1)
    cache = ValkeyReader(settings.valkey, settings.environment)
    for each in (index, cache):
        await each.open()
        opened.push_async_callback(each.close)
    await index.refresh(LIVE)
    return [PostgresReader(database, settings.environment), index, cache]


async def every_page(readers: list[Finder], query: Query, chance: random.Random) -> list[str]:
    """The keys of all pages, each from any of the stores."""
    found: list[str] = []
    page_query = query
    while True:
        try:
            page = await chance.choice(readers).find(LIVE, page_query)
        except NotRanked:
            continue
        found += [row["thing_id"] for row in page.rows]
        if page.last is None:
            return found
        page_query = continued(VIEW, query, write_cursor(VIEW, query, page.last))


def _sorted_by(column: str, row: Mapping[str, Any]) -> Any:
    match column:
        case "text":
            return str(row[column]).encode()
        case "price":
            return Decimal(row[column])
        case _:
            return row[column]


def in_order(order: str) -> list[str]:
    """The keys of all rows, nulls last."""
    rows = sorted(ROWS.values(), key=lambda row: str(row["thing_id"]).encode())
    for step in reversed(order.split(",")):
        column, falling = step.removeprefix("-"), step.startswith("-")
        known = [row for row in rows if row[column] is not None]
        known.sort(key=partial(_sorted_by, column), reverse=falling)
        rows = known + [row for row in rows if row[column] is None]
    return [str(row["thing_id"]) for row in rows]


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order in DECIDING else (pytest.mark.complete,)) for order in ORDERS],
)
def test_pages_of_any_stores_are_one_list(settings: StoreSettings, order: str) -> None:
    chance = random.Random(seed_of(ORDERS.index(order)))

    async def lists() -> list[list[str]]:
        async with AsyncExitStack() as opened:
            readers = await opened_readers(settings, opened)
            single, several = [read_query(VIEW, [("sort", order), ("limit", str(limit))]) for limit in (1, 4)]
            alone = [await every_page([reader], several, chance) for reader in readers[:2]]
            return [*alone, await every_page(readers, single, chance)]

    for found in asyncio.run(lists()):
        assert found == in_order(order)


@pytest.mark.parametrize("number", VALUES["number"][1:])
def test_every_integer_can_be_filtered_by(settings: StoreSettings, number: int) -> None:
    async def found() -> list[list[str]]:
        async with AsyncExitStack() as opened:
            readers = await opened_readers(settings, opened)
            queries = [
                read_query(VIEW, [(name, str(number)), ("limit", "100")])
                for name in ("number", "number.lte", "number.gt")
            ]
            return [
                [row["thing_id"] for row in (await reader.find(LIVE, q)).rows]
                for q in queries
                for reader in readers[:2]
            ]

    rows = [(key, row["number"]) for key, row in sorted(ROWS.items()) if row["number"] is not None]
    equal, at_most, above = ([key for key, each in rows if holds(each)] for holds in (
        number.__eq__, number.__ge__, number.__lt__))  # fmt: skip
    assert asyncio.run(found()) == [equal, equal, at_most, at_most, above, above]


@pytest.mark.parametrize("key", [".", "..", "000"])
def test_a_row_is_found_by_any_key(settings: StoreSettings, key: str) -> None:
    async def found() -> list[Any]:
        async with AsyncExitStack() as opened:
            readers = await opened_readers(settings, opened)
            return [
                ((await reader.get_many(LIVE, [key])).get(key), (await reader.guards(LIVE, [key])).get(key, {}))
                for reader in readers
            ]

    for row, guard in asyncio.run(found()):
        assert row == ROWS[key]
        assert {source: place.offset for source, place in guard.items()} in ({}, {"0": list(ROWS).index(key)})


@pytest.mark.parametrize("store", ["postgres", "elasticsearch", "valkey"])
def test_verify_finds_no_difference_at_the_ends_of_a_type(settings: StoreSettings, store: str) -> None:
    for name, (reader, row_of) in compared_of(store, VIEW, settings).items():
        result = compare(reader, name, Target(VIEW, 1), Target(VIEW, 2), lambda: frozenset, row_of)
        assert result.rows >= len(ROWS)
        assert result.sample == []
