"""The shop, captured while its application changes it: what a reader of the topics has equals the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from headwater.compose.samples.shop_database import fill
from headwater.compose.stack import Stack
from headwater.samples.shop.source import Order, OrderLine, shop
from tests.integration.sources.captured import Connector, Topic, captured
from tests.integration.sources.clients import clients, more_of_each
from tests.integration.sources.held_proxy import HeldProxy
from tests.integration.sources.watching import Watch, away, watching
from tests.support.seeds import seed_of, some_of
from tests.support.waiting import eventually

WHOLE_OLD_ROWS = "ALTER TABLE products REPLICA IDENTITY FULL"
"""The traffic changes keys of products, whose long descriptions PostgreSQL would not send again."""
ROWS = 10_000
"""More than a connector reads at once."""
KILLED = ("connect", "postgres", "kafka")
"""Servers; one of them in each test, and all in a long run."""
MANY = (
    "INSERT INTO orders (id, customer_id, total) "
    f"SELECT n, (SELECT min(id) FROM customers), n / 100.0 FROM generate_series(1000001, {1_000_000 + ROWS}) n"
)
GATE = """
CREATE SEQUENCE gate;
CREATE FUNCTION is_open() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    WHILE (SELECT last_value FROM gate) = 1 LOOP
        PERFORM pg_sleep(0.05);
    END LOOP;
    RETURN true;
END $$;
"""
"""Keeps the connector from reading the rows of its last table, so that no snapshot ends before the gate is open.

A sequence has no versions, so an old snapshot of the database sees it change; and it survives a kill of the server.
"""
GATED = {
    "snapshot.select.statement.overrides": OrderLine.table,
    f"snapshot.select.statement.overrides.{OrderLine.table}": (
        f"SELECT {', '.join(OrderLine.columns)} FROM {OrderLine.table} WHERE is_open()"
    ),
}
"""Lets the connector read its last table through the gate."""
FIRST_CONNECTIONS = 2
"""Of a task that starts: they read the encoding and the types of the database."""
RESTARTED = "of its connector"
OPEN_GATE = "SELECT setval('gate', 2)"


@pytest.fixture(scope="module")
def connector(servers: Stack) -> Iterator[Connector]:
    with captured(servers, shop, [WHOLE_OLD_ROWS]) as made:
        with made.connect() as connection:
            fill(connection, seed_of(1), customers=100, products=50)
            connection.execute(MANY)
            connection.execute(GATE)
        yield replace(made, config={**made.config, **GATED})


@pytest.fixture(scope="module", autouse=True)
def watch(connector: Connector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Restarts the connector whenever a kill makes it fail for good."""
    variables = {**connector.variables, "HEADWATER_MODULES": "shop"}
    with watching(variables, tmp_path_factory.mktemp("watch") / "watch.log") as running:
        yield running
        running.end()


@pytest.fixture(scope="module")
def topics(connector: Connector) -> list[Topic]:
    return [connector.topic(table) for table in shop.tables]


@pytest.mark.complete
@pytest.mark.soak
def test_a_snapshot_that_is_killed_loses_nothing(servers: Stack, connector: Connector, topics: list[Topic]) -> None:
    """It begins anew, so rows that were deleted in between stay in the topics, until they are swept."""
    orders = topics[shop.tables.index(Order)]
    with clients(connector):
        connector.put()
        before = 0
        for part in some_of(KILLED, 1, 2):
            eventually(partial(orders.has_more_than, before), "the snapshot goes on")
            assert not connector.has_read()
            before = len(orders.read())
            servers[part].kill()
            servers[part].wait_healthy()
        with connector.connect() as connection:
            connection.execute(OPEN_GATE)
        eventually(connector.has_read, "the snapshot ends")
    for topic in topics:
        eventually(partial(connector.has_all, topic), "every row comes", every_s=1.0)
    connector.sweep()
    connector.wait_equal(*topics)


@pytest.mark.soak
def test_a_server_that_is_killed_costs_no_change(servers: Stack, connector: Connector, topics: list[Topic]) -> None:
    connector.put()
    with connector.connect() as connection:
        connection.execute(OPEN_GATE)
    connector.wait_read()
    with clients(connector) as running:
        for part in some_of(KILLED, 1, 3):
            more_of_each(running)
            servers[part].kill()
            servers[part].wait_healthy()
    connector.wait_running()
    connector.wait_equal(*topics)


@pytest.fixture
def proxy(servers: Stack, connector: Connector) -> Iterator[HeldProxy]:
    """In front of PostgreSQL for the connector, while a test uses it; everything else connects directly."""
    made = HeldProxy("127.0.0.1", servers.settings.ports.postgres)
    connector.stop()
    connector.put(database_port=str(made.port))
    yield made
    connector.put()
    made.close()


@pytest.mark.complete
def test_a_connector_whose_database_goes_away_while_it_starts_runs_once_it_is_back(
    servers: Stack, connector: Connector, topics: list[Topic], watch: Watch, proxy: HeldProxy
) -> None:
    """Debezium retries the first connection of a start; if a later one fails, Connect leaves the task FAILED."""
    proxy.hold_after(FIRST_CONNECTIONS)
    connector.ask("PUT", "resume")
    proxy.wait_held()
    with away(servers, "postgres"):
        proxy.release()
        eventually(lambda: connector.task()["state"] == "FAILED", "it fails")
        restarts = len(watch.lines(RESTARTED))
        watch.wait_for('source "shop": cannot connect to')
    with clients(connector):
        eventually(lambda: len(watch.lines(RESTARTED)) > restarts, "it is restarted")
        connector.wait_running()
    connector.wait_equal(*topics)
