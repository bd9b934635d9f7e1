"""The index by persons of a stream view: it finds every row that shows a value, whatever else its columns have."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import psycopg
import pytest
from psycopg import sql

from headwater.api.reading import Live
from headwater.api.reads.postgres import Database, PostgresReader, matching
from headwater.api.requests.filters import SEALED_COPY, AnyOf, Filter
from headwater.api.requests.query import Order, Query
from headwater.eventlog.personal.identity import new_key_id
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.online_schema import SEALED, lacking_indexes
from headwater.projections.stores.postgres.schema import sealed_name
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.patch import BATCHES, Patch, Place
from tests.contracts.opened_stores import RealServer
from tests.integration.projections.test_rows_by_persons import WORST, sealed
from tests.support.personal_visits import last_visitor

VIEW = replace(last_visitor, late="drop")
COLUMNS = sorted(VIEW.personal)
ADA, GRACE, LATER = new_key_id("0a0b0c0d"), new_key_id("0a0b0c0d"), new_key_id("0a0b0c0d")
OTHERS = 3_000
"""Rows of others, so that the server prefers an index."""


def recorded() -> dict[str, dict[str, Any]]:
    """The sealed columns, by room."""
    both = orjson.dumps([{"phone": sealed(GRACE)}, {"phone": sealed(ADA)}]).decode()
    return {
        "name": {"name": sealed(ADA), "age": None, "companions": None},
        "age": {"name": "in clear", "age": sealed(ADA), "companions": "[]"},
        "nested": {"name": None, "age": None, "companions": both},
        "grace": {"name": sealed(GRACE), "age": sealed(GRACE), "companions": None},
        "list": {"name": orjson.dumps([sealed(GRACE)] * 3 + [sealed(LATER)]).decode(), "age": None, "companions": None},
        "none": {"name": None, "age": None, "companions": None},
        **{f"W{number}": dict.fromkeys(COLUMNS, text) for number, text in enumerate([*WORST, "", '"', "sealed:1:"])},
        **{
            f"O{number}": {**dict.fromkeys(COLUMNS), "name": sealed(new_key_id("0a0b0c0d"))} for number in range(OTHERS)
        },
    }


@pytest.fixture
def service(servers: dict[str, RealServer], stores: StoreSettings, settings: LogSettings) -> Service:
    """The table is that of a release without this index."""
    generations = Generations(stores.postgres, settings.environment)
    generations.prepare()
    assert generations.swap(VIEW.name, generations.begin(VIEW, {}, {}, {}).generation)
    store, target = servers["postgres"].open(), Target(VIEW, 1)
    store.create(target, {}, dict.fromkeys(range(settings.patch_partitions), 0))
    store.finish(target)
    with psycopg.connect(stores.postgres) as connection:
        connection.execute(f'DROP INDEX "{settings.environment}"."{sealed_name(target)}"')
    assert lacking_indexes(stores, target) == [SEALED]
    return Service(settings, stores, ViewRegistry([("here", VIEW)]))


def load(servers: dict[str, RealServer], number: int = 1, rooms: str = "") -> None:
    patches = [
        Patch(room, BATCHES, Place(number, 0), {"_batch": number, "visits": number, "visitor_id": room, **columns})
        for room, columns in recorded().items()
        if room.startswith(rooms)
    ]
    target = Target(VIEW, 1)
    servers["postgres"].open().apply([target], {0: Batch(number + 1, {target.tag: patches})})


def about(*key_ids: str, person: str = "") -> Query:
    """person: whose id the key may be, too."""
    sealed_with = tuple(Filter(column, SEALED_COPY, key_ids) for column in COLUMNS)
    keyed = (Filter("room", "in", (person,)), Filter("visitor_id", "in", (person,))) if person else ()
    return Query((AnyOf((*sealed_with, *keyed)),), (Order("room"),), limit=50, count=True)


def found(stores: StoreSettings, *key_ids: str, person: str = "") -> list[str]:
    async def ask() -> list[str]:
        database = Database(stores.postgres, stores.environment)
        await database.open()
        try:
            reader, query = PostgresReader(database, stores.environment), about(*key_ids, person=person)
            page = await reader.find(Live(VIEW, 1, VIEW.tag, {}), query)
            assert page.total == len(page.rows)
            return [row["room"] for row in page.rows]
        finally:
            await database.close()

    return asyncio.run(ask())


@pytest.mark.complete
def test_rows_are_found_before_the_index_is_made_and_with_it_while_they_change(
    service: Service, servers: dict[str, RealServer], stores: StoreSettings
) -> None:
    load(servers)
    everything = {(ADA,): ["age", "name", "nested"], (GRACE,): ["grace", "list", "nested"], (LATER,): ["list"]}
    for is_indexed in (False, True):
        assert (lacking_indexes(stores, Target(VIEW, 1)) == []) is is_indexed
        for key_ids, rooms in everything.items():
            assert found(stores, *key_ids) == rooms
        assert found(stores, ADA, LATER) == ["age", "list", "name", "nested"]
        assert found(stores, new_key_id("0a0b0c0d"), "f" * 24) == []
        assert found(stores) == []
        assert found(stores, LATER, person="none") == ["list", "none"]
        service.add_to_stores()
    load(servers, 2)
    assert found(stores, ADA) == everything[ADA,]


@pytest.mark.complete
def test_the_server_finds_them_by_the_index(
    service: Service, servers: dict[str, RealServer], stores: StoreSettings
) -> None:
    load(servers)
    service.add_to_stores()
    table = sql.Identifier(stores.environment, table_name(VIEW.name, 1))
    where = matching(about(ADA).filters[0])
    with psycopg.connect(stores.postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("ANALYZE {}").format(table))
        statement = sql.SQL("EXPLAIN SELECT * FROM {} WHERE {} ORDER BY room LIMIT 51").format(table, where.text)
        plan = "\n".join(row[0] for row in connection.execute(statement, where.values))
    assert f"{table_name(VIEW.name, 1)}_s" in plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.complete
def test_another_sealed_column_of_the_same_version_has_another_index(service: Service, stores: StoreSettings) -> None:
    service.add_to_stores()
    fewer = replace(VIEW, sealed=("name",))
    assert fewer.fingerprint == VIEW.fingerprint
    assert lacking_indexes(stores, Target(fewer, 1)) == [SEALED]
