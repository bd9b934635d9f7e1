"""The shop, captured while its application changes it: what a reader of the topics has equals the tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.shop.filling import fill
from compose.stack import Stack
from eventlog.capturing.control_topics import last_snapshot
from eventlog.sources.shop.shop import Order, shop
from tests.integration.sources.captured import Connector, Topic, captured
from tests.integration.sources.clients import clients, more_of_each
from tests.seeds import seed_of
from tests.waiting import eventually

WHOLE_OLD_ROWS = "ALTER TABLE products REPLICA IDENTITY FULL"
"""The traffic changes keys of products, whose long descriptions PostgreSQL would not send again."""
ROWS = 30_000
"""Enough for a snapshot of some seconds."""
MANY = (
    "INSERT INTO orders (id, customer_id, total) "
    f"SELECT n, (SELECT min(id) FROM customers), n / 100.0 FROM generate_series(1000001, {1_000_000 + ROWS}) n"
)


@pytest.fixture(scope="module")
def connector(servers: Stack) -> Iterator[Connector]:
    with captured(servers, shop, [WHOLE_OLD_ROWS]) as made:
        with made.connect() as connection:
            fill(connection, seed_of(1))
            connection.execute(MANY)
        yield made


@pytest.fixture(scope="module")
def topics(connector: Connector) -> list[Topic]:
    return [connector.topic(table) for table in shop.tables]


def test_a_snapshot_that_is_killed_loses_nothing(servers: Stack, connector: Connector, topics: list[Topic]) -> None:
    """It begins anew, so rows that were deleted in between stay in the topics, until they are swept."""
    orders = topics[shop.tables.index(Order)]
    with clients(connector):
        connector.put()
        for part in ("connect", "postgres", "kafka"):
            before = len(orders.records)
            eventually(lambda before=before: len(orders.read()) > before, "the snapshot goes on")
            assert not has_ended(connector)
            servers.kill(part)
            servers.wait_healthy(part)
        eventually(lambda: has_ended(connector), "the snapshot ends")
    for topic in topics:
        eventually(lambda topic=topic: connector.has_all(topic), "every row comes", every_s=1.0)
    connector.sweep()
    connector.wait_equal(*topics)


def has_ended(connector: Connector) -> bool:
    """Whether the initial snapshot is complete."""
    snapshot = last_snapshot(connector.log, connector.names)
    return snapshot is not None and not snapshot.is_running


@pytest.mark.parametrize("part", ["connect", "postgres", "kafka"])
def test_a_server_that_is_killed_costs_no_change(
    servers: Stack, connector: Connector, topics: list[Topic], part: str
) -> None:
    with clients(connector) as running:
        more_of_each(running)
        servers.kill(part)
        servers.wait_healthy(part)
    connector.wait_running()
    connector.wait_equal(*topics)
