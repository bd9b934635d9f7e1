"""The index by persons of the view of all events: what it finds, and that no text that is written stops it."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headwater.api.reading import Live
from headwater.api.reads.postgres import Database, PostgresReader, matching
from headwater.api.requests.filters import SEALED_WITH, AnyOf, Filter
from headwater.api.requests.query import Order, Query
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.eventlog.personal.identity import new_key_id
from headwater.eventlog.personal.sealed_text import SealedText
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.reading import reader
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.online_schema import SEALED, lacking_indexes
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.views import streams
from tests.contracts.opened_stores import RealServer

LOADED = ViewRegistry.load(["tests.support.personal_customers"]).views["streams"]
assert isinstance(LOADED, TableView)
VIEW: TableView = LOADED
TIME = datetime(2026, 1, 2, tzinfo=UTC)
ADA, GRACE, ERASED = new_key_id("0a0b0c0d"), new_key_id("0a0b0c0d"), new_key_id("0a0b0c0d")
OTHERS = 3_000
"""Events of others, so that the server prefers an index."""


def sealed(key_id: str) -> str:
    return str(SealedText(key_id, "customer.paid", "payee_name", os.urandom(40)))


WORST = [
    '"sealed:1:' + "f" * 9_000 + ":",
    '"sealed:1:',
    "sealed:1:" + "0" * 24,
    '\\"sealed:1:' * 2_000,
    f'"sealed:1:{ADA.upper()}:',
    ":" * 50_000,
    "\u2028ü𝄞\n\t",
]
"""Texts of clients, in fields that are not personal."""


def recorded() -> list[tuple[str, dict[str, Any]]]:
    """By stream, the data of its events."""
    return [
        ("customer/ADA", {"name": sealed(ADA), "by": sealed(ADA)}),
        ("customer/GRACE", {"to": [{"name": sealed(GRACE)}, {"name": sealed(ADA)}], "from": sealed(ERASED)}),
        ("customer/C1", {"name": None}),
        *((f"customer/W{number}", {"text": text}) for number, text in enumerate(WORST)),
        *((f"customer/O{number}", {"name": sealed(new_key_id("0a0b0c0d"))}) for number in range(OTHERS)),
    ]


@pytest.fixture
def service(servers: dict[str, RealServer], stores: StoreSettings, settings: LogSettings) -> Service:
    """The view was built before a field was personal."""
    generations = Generations(stores.postgres, settings.environment)
    generations.prepare()
    assert generations.swap("streams", generations.begin(streams, {}, {}, {}).generation)
    store = servers["postgres"].open()
    starts = dict.fromkeys(range(settings.patch_partitions), 0)
    store.create(Target(streams, 1), {}, starts)
    store.finish(Target(streams, 1))
    return Service(settings, stores, ViewRegistry([("here", VIEW)]))


def load(servers: dict[str, RealServer], number: int) -> None:
    patches = []
    for at, (stream, data) in enumerate(recorded(), number * 10_000):
        envelope = Envelope(f"{stream}/{number}", "customer.paid", stream, TIME, data, sequence=number)
        source = Source(envelope, Position(0, at), timestamp_ms(TIME), encode(envelope).decode())
        patches += list(reader.lift(VIEW, source))
    servers["postgres"].open().apply([Target(VIEW, 1)], {0: Batch(number + 1, {VIEW.tag: patches})})


def about(*key_ids: str, streams: tuple[str, ...] = ()) -> Query:
    either = (Filter("record", SEALED_WITH, key_ids), Filter("stream", "in", streams))
    return Query((AnyOf(either),), (Order("time"), Order("event_id")), limit=50, fields=("event_id",), count=True)


def found(stores: StoreSettings, query: Query) -> list[str]:
    async def ask() -> list[str]:
        database = Database(stores.postgres, stores.environment)
        await database.open()
        try:
            page = await PostgresReader(database, stores.environment).find(Live(VIEW, 1, VIEW.tag, {}), query)
            assert page.total == len(page.rows)
            return [row["event_id"].removeprefix("customer/") for row in page.rows]
        finally:
            await database.close()

    return asyncio.run(ask())


@pytest.mark.complete
def test_a_table_gets_it_while_it_is_used_and_a_new_one_at_its_end(
    service: Service, servers: dict[str, RealServer], stores: StoreSettings
) -> None:
    load(servers, 1)
    assert service.generations.of_this_code(VIEW), "the rows are the same: no new version"
    assert lacking_indexes(stores, Target(VIEW, 1)) == [SEALED]
    service.add_to_stores()
    assert lacking_indexes(stores, Target(VIEW, 1)) == []
    load(servers, 2)
    assert found(stores, about(ADA)) == ["ADA/1", "ADA/2", "GRACE/1", "GRACE/2"]
    assert found(stores, about(GRACE, ERASED)) == ["GRACE/1", "GRACE/2"]
    assert found(stores, about(ERASED, streams=("customer/C1",))) == ["C1/1", "C1/2", "GRACE/1", "GRACE/2"]
    assert found(stores, about(new_key_id("0a0b0c0d"), ADA.upper(), "f" * 24)) == []
    assert found(stores, about()) == []
    target = Target(VIEW, 2)
    store = servers["postgres"].open()
    store.create(target, {}, {})
    store.finish(target)
    assert lacking_indexes(stores, target) == []
    assert lacking_indexes(stores, Target(streams, 1)) == []


@pytest.mark.complete
def test_the_server_finds_the_rows_by_their_indexes(
    service: Service, servers: dict[str, RealServer], stores: StoreSettings
) -> None:
    load(servers, 1)
    service.add_to_stores()
    table = table_name("streams", 1)
    where = matching(about(ADA, streams=("customer/C1",)).filters[0])
    with psycopg.connect(stores.postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(stores.environment, table)))
        asked = sql.SQL("EXPLAIN SELECT record FROM {} WHERE true AND {} ORDER BY time, event_id LIMIT 51")
        statement = asked.format(sql.Identifier(stores.environment, table), where.text)
        plan = "\n".join(row[0] for row in connection.execute(statement, where.values))
    assert f"{table}_s" in plan
    assert f"{table}_i0" in plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.complete
def test_one_that_was_broken_off_is_made_again(service: Service, stores: StoreSettings) -> None:
    service.add_to_stores()
    with psycopg.connect(stores.postgres) as connection:  # as a process leaves it that is killed meanwhile
        name = f'"{stores.environment}"."{table_name("streams", 1)}_s"'
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [name])
    assert lacking_indexes(stores, Target(VIEW, 1)) == [SEALED]
    service.add_to_stores()
    assert lacking_indexes(stores, Target(VIEW, 1)) == []
