"""The shop's tables in views, from SQL to every store: each row is what the database has, whatever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from random import Random
from typing import Any

import httpx
import psycopg
import pytest

from headwater import TableView
from headwater.compose.samples import shop_database as rows
from headwater.compose.samples.shop_database import fill
from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured
from headwater.eventlog.capturing.positions import read_lsn
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing.spans import MS
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.projections.table.layout import DELETED
from headwater.samples.shop.source import Customer, Order, shop
from tests.integration.api.api_deployment import Deployment, serving
from tests.integration.sources.captured import Connector, captured, rows_of
from tests.integration.sources.clients import clients, more_of_each
from tests.integration.sources.fewer_mirrors import FEWER_COUNTED, FEWER_MIRRORS
from tests.integration.sources.mirrors import COUNTED, MIRRORS, Counted, counted, counted_orders, in_rows, shown
from tests.integration.sources.watching import watching
from tests.simulation.read_side import ReadSide
from tests.support.background import running
from tests.support.collector import Collector, Seen, collecting
from tests.support.seeds import examples, seed_of, some_of
from tests.support.states import differences
from tests.support.waiting import Latest, eventually

CHANGES, KILLS = 6, 3
"""Transactions that are followed, and kills of the seven; in a long run there are more."""
STORES = ("postgres", "elasticsearch", "valkey")
FOUND_S = 420.0
"""The upkeep restarts a live query that hangs after a minute, and Spark starts slowly on a busy machine."""


@dataclass
class Mirrored:
    """A captured shop and the read side that mirrors it."""

    connector: Connector
    read_side: ReadSide
    variables: dict[str, str]
    collector: Collector
    mirrors: Mapping[type[Captured], TableView]
    counts: Sequence[Counted]

    @property
    def stores(self) -> StoreSettings:
        """Where the mirrors are."""
        return StoreSettings.from_environment(self.variables)

    def differences(self, table: type[Captured], store: str) -> list[str]:
        """How the mirror of a table in a store differs from the table."""
        view, log = self.mirrors[table], LogSettings.from_environment(self.variables)
        live = Generations(self.stores.postgres, log.environment).serving([view]).get(view.name)
        if live is None:
            return ["there is no live generation"]
        rows = open_reader(store, self.stores).rows(Target(view, live.generation))
        found = {key: shown(table, state) for key, state in rows if not state.get(DELETED)}
        with self.connector.connect() as connection:
            expected = {key: in_rows(table, row) for key, row in rows_of(connection, table).items()}
        return differences(found, expected)

    def counted_differences(self, view: TableView, table: type[Captured], column: str, store: str) -> list[str]:
        """How the counts of a table's rows in a store differ from the table."""
        log = LogSettings.from_environment(self.variables)
        live = Generations(self.stores.postgres, log.environment).serving([view]).get(view.name)
        if live is None:
            return ["there is no live generation"]
        rows = open_reader(store, self.stores).rows(Target(view, live.generation))
        found = {key: {name: row[name] for name in ("rows", "total")} for key, row in rows if not row.get(DELETED)}
        with self.connector.connect() as connection:
            return differences(found, counted(view, rows_of(connection, table).values(), column))

    def is_counted(self, view: TableView, table: type[Captured], column: str, store: str) -> bool:
        """Whether the counts in a store are those of the table now."""
        return not self.counted_differences(view, table, column, store)

    def is_equal(self, table: type[Captured], store: str) -> bool:
        """Whether the table's mirror in a store equals it now."""
        return not self.differences(table, store)

    def wait_equal(self) -> None:
        """Return once every mirror equals its table in every store."""
        for table, store in product(self.mirrors, STORES):
            with suppress(AssertionError):  # the comparison below says more
                eventually(partial(self.is_equal, table, store), timeout_s=FOUND_S, every_s=0.5)
            assert self.differences(table, store) == [], f"{table.table} in {store}"
        for each, store in product(self.counts, STORES):
            with suppress(AssertionError):
                eventually(partial(self.is_counted, *each, store), timeout_s=FOUND_S, every_s=0.5)
            assert self.counted_differences(*each, store) == [], f"{each[0].name} in {store}"

    def replay(self, *words: str) -> str:
        """Run `replay`; returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "headwater.replay", *words],
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def ask_until_answered(api: httpx.Client, path: str, **parameters: str) -> httpx.Response:
    """The first answer that is not one of 503, which says that what is awaited has not come yet."""

    def ask() -> httpx.Response | None:
        answer = api.get(path, params={**parameters, "wait_ms": "30000"})
        return None if answer.status_code == 503 else answer

    return eventually(ask, f"an answer of {path}", FOUND_S)  # type: ignore[return-value]


def names_after(api: httpx.Client, customer: int, after: str) -> dict[str, str | None]:
    """The name of a customer by the store that is asked; None where there is no such customer."""
    view = "/views/mirrored_customers"
    cached = ask_until_answered(api, f"{view}/{customer}", after=after)
    assert cached.status_code in (200, 404), cached.text
    found = {"valkey": cached.json()["name"] if cached.status_code == 200 else None}
    for store, path in (("postgres", view), ("elasticsearch", f"{view}/search")):
        answer = ask_until_answered(api, path, row_key=str(customer), after=after)
        assert answer.status_code == 200, answer.text
        found[store] = next((row["name"] for row in answer.json()["rows"]), None)
    return found


class Registrar:
    """Changes customers of its own in one transaction at a time; names: what each should be called, None if deleted."""

    def __init__(self, connection: psycopg.Connection[Any], seed: int, first: int) -> None:
        self.names: dict[int, str | None] = {}
        self._sql, self._random, self._next = connection, Random(seed), first

    def change(self) -> tuple[list[int], str]:
        """Make a random transaction; returns the customers that it changed, and the position of its commit."""
        living = [customer for customer, name in self.names.items() if name is not None]
        with self._sql.transaction():
            changed = [self._add()] if len(living) < 3 else self._random.choice(self._changes)(self, living)
        ((lsn,),) = self._sql.execute("SELECT pg_current_wal_lsn()")
        return changed, f"shop@{lsn}"

    def _add(self) -> int:
        self._next += 1
        row = {"id": self._next, **rows.customer_row(self._random)}
        columns = ", ".join(row)
        self._sql.execute(f"INSERT INTO customers ({columns}) VALUES ({', '.join(f'%({name})s' for name in row)})", row)
        self.names[self._next] = row["name"]
        return self._next

    def _rename(self, living: list[int]) -> list[int]:
        chosen = self._random.sample(living, self._random.randrange(1, 3))
        for customer in chosen:
            self.names[customer] = f"{self._random.random()}"
            self._sql.execute("UPDATE customers SET name = %s WHERE id = %s", (self.names[customer], customer))
        return chosen

    def _delete(self, living: list[int]) -> list[int]:
        customer = self._random.choice(living)
        self._sql.execute("DELETE FROM customers WHERE id = %s", (customer,))
        self.names[customer] = None
        return [customer, self._add()]

    def _renumber(self, living: list[int]) -> list[int]:
        customer = self._random.choice(living)
        self._next += 1
        self._sql.execute("UPDATE customers SET id = %s WHERE id = %s", (self._next, customer))
        self.names[self._next], self.names[customer] = self.names[customer], None
        return [customer, self._next]

    _changes = (_rename, _rename, _delete, _renumber)


@pytest.fixture(scope="module")
def mirrored(
    servers: Stack, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mirrored]:
    """With half of the views where only the tests run that decide: Spark takes long to compile each of them."""
    here = [item for item in request.session.items if item.path == request.path]
    has_all = any(item.get_closest_marker("complete") for item in here)
    module, mirrors, counts = (
        ("mirrors", MIRRORS, COUNTED) if has_all else ("fewer_mirrors", FEWER_MIRRORS, FEWER_COUNTED)
    )
    full = ["ALTER TABLE products REPLICA IDENTITY FULL"]
    with captured(servers, shop, full) as connector, collecting() as collector:
        with connector.connect() as connection:
            fill(connection, seed_of(1), customers=100, products=50)
        variables = os.environ | servers.endpoints.environment() | {
            "HEADWATER_ENVIRONMENT": connector.log.environment,
            "HEADWATER_PARTITIONS": str(connector.log.partitions),
            "HEADWATER_MODULES": f"headwater.samples.shop.source,tests.integration.sources.{module}",
            "HEADWATER_STATE": str(tmp_path_factory.mktemp("state")),
        }  # fmt: skip
        read_side = ReadSide(LogSettings.from_environment(variables), servers, collector.variables)
        read_side.start()
        watch = watching({**connector.variables, "HEADWATER_MODULES": "shop"}, tmp_path_factory.mktemp("watch") / "log")
        try:
            read_side.wait_until_up()
            with watch:
                yield Mirrored(connector, read_side, variables, collector, mirrors, counts)
        finally:
            read_side.stop()


@pytest.fixture(scope="module")
def api(mirrored: Mirrored, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of the API, which knows Kafka and the stores, and not the database."""
    variables = {name: text for name, text in mirrored.variables.items() if not name.startswith(shop.prefix)}
    with serving(Deployment(variables, tmp_path_factory.mktemp("api"))) as client:
        yield client


def test_every_row_of_every_table_is_in_every_store(mirrored: Mirrored) -> None:
    mirrored.connector.put()
    mirrored.wait_equal()


@pytest.mark.complete
def test_a_change_in_the_database_is_a_trace_into_the_rows_of_each_store(mirrored: Mirrored) -> None:
    mirrored.connector.put()
    # no row of the snapshot is still to come
    eventually(lambda: all(mirrored.is_equal(Customer, store) for store in STORES), timeout_s=FOUND_S, every_s=0.5)
    with mirrored.connector.connect() as connection:
        ((before,),) = connection.execute("SELECT clock_timestamp()")
        connection.execute("UPDATE customers SET name = %s WHERE id = 1", (f"renamed {before}",))
    began_ns = int(before.timestamp() * 1e6) * 1_000 // MS * MS  # Debezium gives it in milliseconds
    spans = mirrored.collector.spans

    def patches() -> list[Seen]:
        return [span for span in list(spans) if span.name == "patch mirrored_customers" and span.began_ns >= began_ns]

    def loads() -> dict[Any, Seen]:
        made = [span for span in list(spans) if span.parent in {patch.id for patch in patches()}]
        return {span.facts["headwater.store"]: span for span in made}

    eventually(lambda: loads().keys() == set(STORES), Latest(lambda: f"of {patches()} there are {loads()}"), FOUND_S)
    (patch,) = patches()
    assert (patch.parent, patch.service) == ("", "headwater-load-postgres")
    for store, load in loads().items():
        assert (load.name, load.trace) == ("load mirrored_customers", patch.trace)
        assert load.service == f"headwater-load-{store}"
        assert began_ns <= patch.began_ns <= patch.ended_ns <= load.ended_ns
    assert not any(f"renamed {before}" in str(span.facts) for span in list(spans))


def test_counts_follow_moves_and_deletes(mirrored: Mirrored, api: httpx.Client) -> None:
    mirrored.connector.put()
    with mirrored.connector.connect() as connection:
        connection.execute("UPDATE orders SET status = 'cancelled' WHERE id % 3 = 0")
        connection.execute("DELETE FROM order_lines WHERE line_number = 2")
        ((lsn,),) = connection.execute("SELECT pg_current_wal_lsn()")
        expected = counted(counted_orders, rows_of(connection, Order).values(), "customer_id")
    for path in ("/views/counted_orders", "/views/counted_orders/search"):
        answer = ask_until_answered(api, path, after=f"shop@{lsn}")
        found = {row["status"]: {name: row[name] for name in ("rows", "total")} for row in answer.json()["rows"]}
        assert found == expected, path
    one = ask_until_answered(api, "/views/counted_orders/cancelled", after=f"shop@{lsn}").json()
    assert one["rows"] == expected["cancelled"]["rows"]
    must_show_the_dearest(mirrored, api, f"shop@{lsn}")
    assert api.get("/views/counted_orders/changes").json()["type"].endswith("not_followed")
    mirrored.wait_equal()


def must_show_the_dearest(mirrored: Mirrored, api: httpx.Client, after: str) -> None:
    """The highest total of each status is that of the database, and filters go by its value."""
    with mirrored.connector.connect() as connection:
        totals = dict(connection.execute("SELECT status::text, max(total) FROM orders GROUP BY status").fetchall())
    middle = sorted(totals.values())[len(totals) // 2]
    for path in ("/views/money_by_status", "/views/money_by_status/search"):
        rows = ask_until_answered(api, path, after=after).json()["rows"]
        assert {row["status"]: Decimal(row["dearest"]) for row in rows} == totals
        some = ask_until_answered(api, path, **{"dearest.gte": str(middle), "after": after}).json()["rows"]
        assert {row["status"] for row in some} == {status for status, total in totals.items() if total >= middle}


@pytest.mark.complete
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_counts_are_those_of_a_replay(mirrored: Mirrored, engine: str) -> None:
    mirrored.connector.put()
    with mirrored.connector.connect() as connection:
        connection.execute("UPDATE orders SET status = 'paid' WHERE id % 5 = 0")
        connection.execute("DELETE FROM order_lines WHERE order_id % 5 = 0")
    mirrored.wait_equal()
    names = [view.name for view, *_ in COUNTED]
    mirrored.replay("rebuild", *names, "--engine", engine)
    mirrored.wait_equal()
    mirrored.replay("verify", *names)


@pytest.mark.soak
@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.complete)])
def test_a_query_after_a_commit_has_all_that_was_committed(
    servers: Stack, mirrored: Mirrored, api: httpx.Client, is_killed: bool
) -> None:
    """In every store at once, while other rows change, with some not captured, also while Connect is killed."""
    mirrored.connector.put()

    def change_other_rows(stop: threading.Event) -> None:
        with mirrored.connector.connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS elsewhere (number bigint)")
            while not stop.wait(0.2):
                connection.execute("INSERT INTO elsewhere VALUES (1)")
                connection.execute("UPDATE orders SET note = random()::text WHERE id = (SELECT min(id) FROM orders)")

    with mirrored.connector.connect() as connection, running(change_other_rows):
        registrar = Registrar(connection, seed_of(3), first=6_000_000 if is_killed else 5_000_000)
        changes = examples(CHANGES)
        for number in range(changes):
            if is_killed and number == changes // 2:
                servers["connect"].kill()
            changed, after = registrar.change()
            for customer in changed:
                expected = dict.fromkeys(STORES, registrar.names[customer])
                assert names_after(api, customer, after) == expected, f"{customer} after {after}, change {number}"


def test_where_a_database_stands_is_a_position_to_wait_for(mirrored: Mirrored, api: httpx.Client) -> None:
    mirrored.connector.put()
    with mirrored.connector.connect() as connection:
        ((lsn,),) = connection.execute("SELECT pg_logical_emit_message(true, 'headwater', '')")
    first = ask_until_answered(api, "/views/mirrored_customers", after=f"shop@{lsn}", limit="1")
    assert first.status_code == 200
    found = api.get("/positions/shop").json()
    source, _, position = found["position"].partition("@")
    assert source == "shop"
    assert read_lsn(position) >= read_lsn(lsn)
    assert found["tables"].keys() == {table.table for table in shop.tables}
    for table, view in mirrored.mirrors.items():
        after = f"{found['position']},{found['tables'][table.table]}"
        assert ask_until_answered(api, f"/views/{view.name}", after=after, limit="1").status_code == 200
    problem = api.get("/views/mirrored_customers", params={"after": "shop@FFFFFFFF/0", "wait_ms": 0}).json()
    assert (problem["status"], problem["source"]) == (503, "shop")
    assert read_lsn(problem["reached"]) >= read_lsn(lsn)


@pytest.mark.soak
@pytest.mark.parametrize(
    "which", [slice(1), pytest.param(slice(1, None), marks=pytest.mark.complete)], ids=["one", "the others"]
)
def test_kills_of_everything_between_sql_and_a_view_change_no_row(
    servers: Stack, mirrored: Mirrored, which: slice
) -> None:
    read_side = mirrored.read_side
    kills: list[Callable[[], object]] = [
        lambda: read_side.kill("headwater.projections", "live"),
        servers["connect"].kill,
        lambda: read_side.kill("load", "postgres"),
        servers["postgres"].kill,
        lambda: read_side.kill("load", "elasticsearch"),
        servers["kafka"].kill,
        lambda: read_side.kill("load", "valkey"),
    ]
    with clients(mirrored.connector) as running:
        for kill in some_of(kills, KILLS, 4)[which]:
            kill()
            more_of_each(running)
        servers["postgres"].wait_healthy()
        servers["kafka"].wait_healthy()
    mirrored.wait_equal()


@pytest.mark.complete
@pytest.mark.soak
def test_a_rebuild_while_rows_change_has_the_same_rows(mirrored: Mirrored) -> None:
    mirrors, counts = list(MIRRORS.values()), [view for view, *_ in COUNTED]
    views = [view.name for view in (*some_of(mirrors, 1, 5), *some_of(counts, 1, 6))]
    with clients(mirrored.connector, 1):
        told = json.loads(mirrored.replay("rebuild", *views, "--json").splitlines()[-1])
    assert {view["view"] for view in told["views"]} == set(views)
    assert told["events_per_s"] > 0
    mirrored.wait_equal()
