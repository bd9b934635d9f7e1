"""Columns in clear in real stores: opened live and in bulk, searched, and emptied by an erasure, whoever writes."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch as Client

from headwater.api.reading import Live
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.requests.query import read_query
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.projections.errors import KeysAway
from headwater.projections.stores.backend import ClearGeneration, ClearRows
from headwater.projections.stores.elasticsearch import clear_rows as elasticsearch_rows
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows
from headwater.projections.stores.elasticsearch.client import send
from headwater.projections.stores.erasing import SETTLED_S, ClearErasure, clear_stores, has_clear_columns
from headwater.projections.stores.names import index_name
from headwater.projections.stores.open import backend, compared_of
from headwater.projections.stores.postgres.store import PostgresClearRows
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, Place
from tests.contracts.opened_stores import RealServer
from tests.contracts.test_view_stores import START, arrow, server, store_name
from tests.support.clear_customers import known_customers
from tests.support.memory_vault import memory_vault
from tests.support.personal_customers import customers
from tests.support.waiting import eventually

__all__ = ["server", "store_name"]  # fixtures
BOTH = pytest.mark.parametrize("store_name", ["postgres", "elasticsearch"])

VIEW = known_customers
CLEAR_ROWS: Mapping[str, Callable[..., ClearRows]] = {
    "postgres": PostgresClearRows,
    "elasticsearch": ElasticsearchClearRows,
}


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


def sealed(person: str, field: str, value: object) -> str:
    return installed().seal(person, "customer.registered", field, value)


def key_ids(person: str) -> list[str]:
    return [key.key_id for key in installed().store.keys_of(person)]


def registered(person: str, order: int = 1) -> State:
    mail, born = sealed(person, "email", f"{person}@example.org"), sealed(person, "born", 1815)
    return {"email": mail, "born": born, "_order0": order}


def created(server: RealServer, generation: int = 1) -> Target:
    target, store = Target(VIEW, generation), server.open()
    store.create(target, {}, START)
    store.finish(target)
    store.publish(target)
    return target


def applied(server: RealServer, target: Target, states: Mapping[str, State], at: int = 0) -> None:
    patches = [Patch(key, "0", Place(at + n, 0), dict(fields)) for n, (key, fields) in enumerate(states.items())]
    server.open().apply([target], {0: Batch(at + len(patches), {target.tag: patches}, first_offset=at)})


def in_clear(server: RealServer, target: Target) -> dict[str, dict[str, Any]]:
    """Rows as somebody sees them who reads the store without Headwater."""
    if server.open().name == "postgres":
        with psycopg.connect(server.settings.postgres) as connection:
            table = f'"{server.settings.environment}"."{VIEW.name}"'
            found = connection.execute(f"SELECT customer_id, email, born, payee FROM {table}").fetchall()
        return {key: {"email": email, "born": born, "payee": payee} for key, email, born, payee in found}
    index = index_name(server.settings.environment, *target.id)
    with Client(server.settings.elasticsearch) as client:
        client.indices.refresh(index=index)
        hits = client.search(index=index, size=1000)["hits"]["hits"]
        names = ("email", "born", "payee")
        return {hit["_source"]["customer_id"]: {name: hit["_source"].get(name) for name in names} for hit in hits}


def found_by_mail(server: RealServer, target: Target, mail: str) -> int:
    if server.open().name == "postgres":
        return sum(row["email"] == mail for row in in_clear(server, target).values())
    index = index_name(server.settings.environment, *target.id)
    with Client(server.settings.elasticsearch) as client:
        client.indices.refresh(index=index)
        words = client.count(index=index, query={"match_phrase": {"email.text": mail}})["count"]
        assert client.count(index=index, query={"term": {"email": mail}})["count"] == words
        return int(words)


def clear_rows(server: RealServer) -> ClearRows:
    return CLEAR_ROWS[server.open().name](server.settings)


def of(server: RealServer, target: Target) -> ClearGeneration:
    (found,) = [generation for generation in clear_rows(server).generations() if generation.id == target.id]
    return found


@BOTH
def test_patches_are_opened_and_states_stay_sealed(server: RealServer, keys: MemoryKeys) -> None:
    target = created(server)
    states = {"C1": registered("C1"), "C2": registered("C2")}
    applied(server, target, states)
    applied(server, target, {"C1": {"payee": sealed("P1", "payee_name", "Ada\0"), "payments": 1, "_order1": 2}}, at=2)
    shown = in_clear(server, target)
    assert shown["C2"] == {"email": "C2@example.org", "born": "1815", "payee": None}
    assert str(shown["C1"]["payee"]).startswith("Ada")
    assert found_by_mail(server, target, "C1@example.org") == 1
    rows = dict(backend(server.open().name).reader(server.settings).rows(target))
    assert rows["C2"]["email"] == states["C2"]["email"]
    assert clear_rows(server).count(of(server, target), key_ids("P1")) == 1
    assert clear_rows(server).count(of(server, target), key_ids("C1")) == 1


@BOTH
def test_bulk_writes_the_same_rows(server: RealServer, keys: MemoryKeys) -> None:
    live = created(server)
    states: dict[str, State] = {f"C{n}": registered(f"C{n}") for n in range(5)}
    states["plain"] = {"email": "before@example.org", "_order0": 1}  # of an event from before it was personal
    states["none"] = {"payments": 1}
    applied(server, live, states)
    bulk, store = Target(VIEW, 2), server.open()
    store.create(bulk, {}, START)
    pickle.loads(pickle.dumps(store.bulk_writer(bulk))).write(iter([arrow(VIEW, states)]))
    store.finish(bulk)
    before = in_clear(server, live)
    store.publish(bulk)
    assert in_clear(server, bulk) == before
    assert before["plain"]["email"] == "before@example.org"
    for target in (live, bulk):
        assert clear_rows(server).count(of(server, target), key_ids("C3")) == 1
    reader = compared_of(store.name, VIEW, server.settings)[f"{store.name} in clear"].reader
    rows = dict(reader.rows(live))
    assert rows == dict(reader.rows(bulk)) == reader.rows_of(live, [*states])
    assert rows["plain"] == {"email": "before@example.org"}
    assert "none" not in rows
    clear_rows(server).empty(of(server, live), key_ids("C3"))
    assert "C3" not in reader.rows_of(live, ["C3"])


@BOTH
def test_erasing_empties_the_values_of_one_person_in_every_generation(server: RealServer, keys: MemoryKeys) -> None:
    live, other = created(server), created(server, 2)
    two = {**registered("C1"), "payee": sealed("P1", "payee_name", "Grace"), "payments": 1, "_order1": 1}
    for target in (live, other):
        applied(server, target, {"C1": two, "C2": registered("C2")})
    ids = key_ids("C1")
    keys.erase("C1")
    for target in (live, other):
        rows = clear_rows(server)
        assert (rows.empty(of(server, target), ids), rows.empty(of(server, target), ids)) == (1, 0)
        server.open().publish(target)
        shown = in_clear(server, target)
        assert shown["C1"] == {"email": None, "born": None, "payee": "Grace"}
        assert shown["C2"]["email"] == "C2@example.org"
        assert found_by_mail(server, target, "C1@example.org") == 0
        assert rows.count(of(server, target), key_ids("P1")) == 1
    # patches that come later, or are read again, open nothing that is erased
    applied(server, other, {"C1": {"payments": 1}}, at=2)
    assert in_clear(server, other)["C1"]["email"] is None
    applied(server, other, {"C1": registered("C1", 3)}, at=3)
    assert in_clear(server, other)["C1"]["email"] == "C1@example.org", "a new key: a new fact"


@BOTH
def test_bulk_that_began_before_an_erasure_shows_nothing_of_it_at_its_end(server: RealServer, keys: MemoryKeys) -> None:
    keys.key_of("somebody")
    keys.erase("somebody")
    number = keys.erasures(0).number
    states = {"C1": registered("C1"), "C2": registered("C2")}
    target, store = Target(VIEW, 1), server.open()
    store.create(target, {}, START)
    store.bulk_writer(target).write(iter([arrow(VIEW, states)]))
    keys.erase("C1")
    now = [0.0]
    erasure = ClearErasure(server.settings, lambda: [store.name], clock=lambda: now[0], wait=lambda _: None)
    for now[0] in (0.0, SETTLED_S, 2 * SETTLED_S):
        erasure.sweep(keys)
    assert of(server, target).erased == number, "rows of bulk may come that nobody has seen"
    store.finish(target)
    store.publish(target)
    assert {key: row["email"] for key, row in in_clear(server, target).items()} == {"C1": None, "C2": "C2@example.org"}


@BOTH
def test_a_store_of_keys_that_is_away_holds_up_rows_and_loses_nothing(server: RealServer, keys: MemoryKeys) -> None:
    target = created(server)
    states = {"C1": registered("C1")}
    keys.is_away = True
    with pytest.raises(KeysAway, match="away"):
        applied(server, target, states)
    assert in_clear(server, target) == {}
    keys.is_away = False
    applied(server, target, states)
    assert in_clear(server, target)["C1"]["email"] == "C1@example.org"


@BOTH
def test_a_sweep_goes_on_with_what_an_erasure_has_left(server: RealServer, keys: MemoryKeys) -> None:
    target, now, waits = created(server), [0.0], list[float]()
    name = server.open().name
    erasure = ClearErasure(server.settings, lambda: [name], clock=lambda: now[0], wait=waits.append)
    applied(server, target, {"C1": registered("C1"), "C2": registered("C2")})
    assert (erasure.sweep(keys), waits) == (0, [])
    keys.erase("C1")
    assert [
        (generation.view, generation.generation, generation.rows) for generation in erasure.count(key_ids("C1"))
    ] == [(VIEW.name, 1, 1)]
    assert (erasure.sweep(keys), waits) == (1, [1])
    assert in_clear(server, target)["C1"]["email"] is None
    assert (erasure.sweep(keys), of(server, target).erased) == (0, 0)
    now[0] = SETTLED_S
    assert (erasure.sweep(keys), of(server, target).erased) == (0, keys.erasures(0).number)
    assert (erasure.sweep(keys), len(waits)) == (0, 2)
    keys.erase("C2")
    assert [counted.rows for counted in erasure.empty([*key_ids("C1"), *key_ids("C2")])] == [1]
    assert found_by_mail(server, target, "C2@example.org") == 0
    server.open().drop(target)
    assert (erasure.count(key_ids("C2")), list(clear_rows(server).generations())) == ([], [])


@pytest.mark.parametrize("store_name", ["postgres"])
def test_an_erasure_waits_for_rows_that_a_loader_has_opened_and_not_committed(
    server: RealServer, keys: MemoryKeys
) -> None:
    target, erasing = created(server), list[Thread]()
    states = {"C1": registered("C1")}

    def erase(moment: str) -> None:
        if moment == "rows written":
            ids = key_ids("C1")
            keys.erase("C1")
            erasing.append(Thread(target=clear_rows(server).empty, args=(of(server, target), ids)))
            erasing[0].start()
            eventually(lambda: locks_waited_for(server) == 1, "the erasure waits")

    patches = [Patch("C1", "0", Place(0, 0), dict(states["C1"]))]
    server.open(erase).apply([target], {0: Batch(1, {target.tag: patches})})
    erasing[0].join(240)
    assert in_clear(server, target)["C1"]["email"] is None


def locks_waited_for(server: RealServer) -> int:
    with psycopg.connect(server.settings.postgres) as connection:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        row = connection.execute(asked, [f"%{server.settings.environment}%FOR UPDATE%"]).fetchone()
    return 0 if row is None else int(row[0])


@BOTH
def test_rows_are_found_by_what_is_in_clear_and_shown_from_sealed_texts(server: RealServer, keys: MemoryKeys) -> None:
    target = created(server)
    states = {f"C{n}": registered(f"C{n}") for n in range(3)}
    applied(server, target, states)
    live = Live(VIEW, 1, VIEW.tag, {})

    def found(*parameters: tuple[str, str]) -> list[Any]:
        async def ask() -> Any:
            async with reader_of(server) as reader:
                query = read_query(VIEW, parameters, clear=("email", "born", "payee"))
                page = await reader.find(live, query)
                many = await reader.get_many(live, ["C1"], ("email",))
                assert many["C1"]["email"] == states["C1"]["email"]
                one = (await reader.get_many(live, ["C1"])).get("C1")
                assert (one["email"], one["payments"]) == (states["C1"]["email"], 0)
                return page

        found_in_clear(server, target)
        return [(row["customer_id"], row["email"]) for row in asyncio.run(ask()).rows]

    one = [("C1", states["C1"]["email"])]
    assert found(("email", "C1@example.org")) == one
    assert found(("or", "(email=C1@example.org,email.prefix=nobody)")) == one
    assert found(("email.iprefix", "c1@EX"), ("born", "1815")) == one
    assert [key for key, _ in found(("payee.is_null", "true"))] == ["C0", "C1", "C2"]
    keys.erase("C1")
    clear_rows(server).empty(of(server, target), key_ids("C1"))
    assert found(("email", "C1@example.org")) == []


@pytest.mark.parametrize("store_name", ["elasticsearch"])
def test_words_are_not_found_for_callers_who_may_not_read_them(server: RealServer, keys: MemoryKeys) -> None:
    target = created(server)
    applied(server, target, {"C1": registered("C1"), "C2": registered("C2")})
    found_in_clear(server, target)

    def searched(*parameters: tuple[str, str]) -> Any:
        async def ask() -> Any:
            async with reader_of(server) as reader:
                return await reader.search(Live(VIEW, 1, VIEW.tag, {}), read_query(VIEW, parameters, searching=True))

        return asyncio.run(ask())

    page = searched(("q", "C1@example.org"), ("highlight", "true"))
    assert [row["customer_id"] for row in page.rows] == ["C1"]
    assert page.rows[0]["email"].startswith("sealed:")
    keys.erase("C1")
    clear_rows(server).empty(of(server, target), key_ids("C1"))
    assert [row["customer_id"] for row in searched(("q", "C1@example.org")).rows] == []


def found_in_clear(server: RealServer, target: Target) -> None:
    """Make writes visible to searches."""
    in_clear(server, target)


@asynccontextmanager
async def reader_of(server: RealServer) -> AsyncIterator[Any]:
    settings = server.settings
    if server.open().name == "postgres":
        database = Database(settings.postgres, settings.environment)
        await database.open()
        try:
            yield PostgresReader(database, settings.environment)
        finally:
            await database.close()
        return
    reader = ElasticsearchReader(settings.elasticsearch, settings.environment, 1)
    await reader.open()
    try:
        yield reader
    finally:
        await reader.close()


def test_the_stores_of_views_with_such_columns_are_known() -> None:
    assert clear_stores(["valkey", "postgres", "elasticsearch", "gone"]) == ["elasticsearch", "postgres"]
    assert (has_clear_columns([VIEW]), has_clear_columns([customers])) == (True, False)


@pytest.mark.parametrize("store_name", ["elasticsearch"])
def test_an_erasure_that_was_killed_among_documents_is_repeated(
    server: RealServer, keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = created(server)
    applied(server, target, {f"row{n}": registered("C1", n) for n in range(5)})
    ids, sent = key_ids("C1"), list[int]()
    keys.erase("C1")

    def dying(*given: Any) -> list[int]:
        if len(sent) == 2:
            raise SystemExit
        sent.append(1)
        return send(*given)

    with monkeypatch.context() as patched:
        patched.setattr(elasticsearch_rows, "BULK_ROWS", 1)
        patched.setattr(elasticsearch_rows, "send", dying)
        with pytest.raises(SystemExit):
            clear_rows(server).empty(of(server, target), ids)
    assert clear_rows(server).count(of(server, target), ids) == 3
    assert clear_rows(server).empty(of(server, target), ids) == 3
    assert {row["email"] for row in in_clear(server, target).values()} == {None}
