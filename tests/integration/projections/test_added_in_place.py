"""Indexes that a view declares after it was built: added to what is live, without a new version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.online_schema import lacking_indexes
from headwater.projections.stores.store import Target
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_GROUP, Removed


def view_with(*indexes: tuple[str, ...]) -> TableView:
    stores = tuple(Postgres(indexes) if store.name == "postgres" else store for store in BY_GROUP.stores)
    return replace(BY_GROUP, stores=stores)


FIRST = next(name for name, kind in BY_GROUP.types.items() if kind.value == "integer" and name != BY_GROUP.key_name)
BEFORE, AFTER = view_with((FIRST,)), view_with((f"-{FIRST}", BY_GROUP.key_name), (FIRST,), (BY_GROUP.key_name,))
TARGET = Target(AFTER, 1)


@pytest.fixture
def service(servers: dict[str, RealServer], stores: StoreSettings, settings: LogSettings) -> Service:
    """One whose view was built when it declared fewer indexes."""
    generations = Generations(stores.postgres, settings.environment)
    generations.prepare()
    assert generations.swap(BEFORE.name, generations.begin(BEFORE, {}, {}, {}).generation)
    store = servers["postgres"].open()
    store.create(Target(BEFORE, 1), {}, {})
    store.finish(Target(BEFORE, 1))
    return Service(settings, stores, ViewRegistry([("here", AFTER)]))


def indexes(stores: StoreSettings) -> dict[str, str]:
    """The definitions of valid secondary indexes, by name."""
    query = """SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
        WHERE indrelid = %s::regclass AND indisvalid AND NOT indisprimary"""
    with psycopg.connect(stores.postgres) as connection:
        connection.execute(f"SET search_path = {stores.environment}")
        rows = connection.execute(query, [f'"{table_name(BY_GROUP.name, 1)}"']).fetchall()
    return {name: definition.partition("USING btree ")[2].replace('"', "") for name, definition in rows}


@pytest.mark.complete
def test_they_are_added_to_the_live_table_once(service: Service, stores: StoreSettings) -> None:
    assert service.generations.of_this_code(AFTER), "no new version is asked for"
    assert lacking_indexes(stores, TARGET) == [f"index (-{FIRST}, {BY_GROUP.key_name})", f"index ({BY_GROUP.key_name})"]
    before = indexes(stores)
    service.add_to_stores()
    after = indexes(stores)
    assert before.items() < after.items()
    assert sorted(after.values()) == sorted(
        [f"({FIRST})", f"({BY_GROUP.key_name})", f"({FIRST} DESC NULLS LAST, {BY_GROUP.key_name})"]
    )
    service.add_to_stores()
    assert indexes(stores) == after
    assert lacking_indexes(stores, TARGET) == []
    Service(service.settings, stores, ViewRegistry([("here", BEFORE)])).add_to_stores()
    assert indexes(stores) == after, "code of an earlier deployment takes none away"


@pytest.mark.complete
def test_one_that_was_broken_off_is_made_again(service: Service, stores: StoreSettings) -> None:
    service.add_to_stores()
    whole = indexes(stores)
    name = next(name for name, columns in whole.items() if columns == f"({BY_GROUP.key_name})")
    with psycopg.connect(stores.postgres) as connection:  # as a process leaves it that is killed meanwhile
        connection.execute(f"SET search_path = {stores.environment}")
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [name])
    assert lacking_indexes(stores, TARGET) == [f"index ({BY_GROUP.key_name})"]
    service.add_to_stores()
    assert sorted(indexes(stores).values()) == sorted(whole.values())


@pytest.mark.complete
def test_two_processes_add_each_once(service: Service, stores: StoreSettings) -> None:
    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(service.add_to_stores) for _ in range(3)]:
            each.result()
    assert len(indexes(stores)) == 3


@pytest.mark.complete
def test_a_store_that_is_away_is_tried_again(service: Service, stores: StoreSettings) -> None:
    away = replace(stores, postgres="postgresql://127.0.0.1:1/none")
    assert not Service(service.settings, away, service.views)._add_to("postgres", TARGET)


@pytest.mark.complete
def test_another_column_still_needs_a_version(service: Service) -> None:
    changed = replace(AFTER, columns={**AFTER.columns, "removed_last": last({Removed: "thing_id"})})
    with pytest.raises(ViewDeclarationError, match="the declaration changed, but the version is still 1"):
        service.generations.of_this_code(changed)
