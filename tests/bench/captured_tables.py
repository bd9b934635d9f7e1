"""Benches `cdc_snapshot` and `cdc_throughput`: how many rows of a captured table reach a view per second.

`cdc_snapshot`: a table of 1,000,000 rows, from the registration of its connector to the last row in a view in
PostgreSQL. `cdc_throughput`: 300,000 rows are changed as fast as PostgreSQL takes it, 1,000 per transaction, from the
first change to the last one in the view. The floor of both is Debezium alone: the same rows, until the last record can
be read with `read_committed`, without the read side. The servers are the bench's own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg import sql

from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import CAPTURING, Stack
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, ready_file
from headwater.samples.shop import source as shop_module
from headwater.samples.shop.source import Customer, shop
from tests.bench import _captured_table as copied_module
from tests.bench._captured_table import copied_customers
from tests.bench._deployment import process
from tests.bench._waiting import eventually
from tests.integration.sources.captured import Connector, captured

NAMES = ("cdc_snapshot", "cdc_throughput")
ROWS = {"cdc_snapshot": 1_000_000, "cdc_throughput": 300_000}
IN_A_TRANSACTION = 1_000
LIMIT_S = 1_800.0
READ_AT_ONCE = 10_000
FILL = """
INSERT INTO customers (id, public_id, name, email, is_business, interests, preferences)
SELECT n, gen_random_uuid(), 'Ada ' || n, 'ada' || n || '@example.com', n %% 7 = 0, '{tea,books}', '{"letters": true}'
FROM generate_series(1, %s) n
"""
CHANGE = "UPDATE customers SET name = 'Grace ' || id, changed_at = now() WHERE id BETWEEN %s AND %s"


def run(name: str) -> Iterator[dict[str, Any]]:
    """One line: rows/s into the view, and into Kafka alone."""
    rows = ROWS[name]
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-")))
        folder.chmod(0o711)  # PostgreSQL's user must pass it, if this is root
        stack = running.enter_context(Stack(StackSettings(folder / "servers", free_ports()), CAPTURING))
        with captured(stack, shop) as connector:
            alone_s, memory = _into_kafka(name, connector, rows), _connect_mb()
        with captured(stack, shop) as connector:
            view_s = _into_a_view(name, connector, rows, folder, stack)
    value, floor = round(rows / view_s), round(rows / alone_s)
    of = "the snapshot of" if name == "cdc_snapshot" else f"{IN_A_TRANSACTION:,} changes per transaction, in all"
    yield {
        "value": value,
        "unit": "rows/s",
        "floor": floor,
        "ratio": round(value / floor, 2),
        "connect_mb": memory,
        "conditions": f"{of} {rows:,} rows to a view in PostgreSQL, {view_s:.1f} s; by hand: Debezium alone into "
        f"Kafka, {alone_s:.1f} s; memory of Kafka Connect {memory} MB",
    }


def _into_kafka(name: str, connector: Connector, rows: int) -> float:
    """Seconds until the last record is committed, without the read side."""
    with connector.connect() as connection, closing(_Counted(connector.log)) as records:
        connection.execute(FILL, (rows,))
        start = time.perf_counter()
        connector.put()
        records.wait(rows)
        if name == "cdc_throughput":
            start = time.perf_counter()
            _change(connection, rows)
            records.wait(rows)
        return time.perf_counter() - start


def _into_a_view(name: str, connector: Connector, rows: int, folder: Path, stack: Stack) -> float:
    """Seconds until the last row is in the view."""
    environment = connector.log.environment
    variables = {
        **os.environ,
        **stack.endpoints.environment(),
        "HEADWATER_ENVIRONMENT": environment,
        "HEADWATER_PARTITIONS": str(connector.log.partitions),
        "HEADWATER_MODULES": f"{shop_module.__name__},{copied_module.__name__}",
        "HEADWATER_STATE": str(folder),
    }
    log = LogSettings.from_environment(variables)
    view = sql.Identifier(environment, copied_customers.name)
    copied = sql.SQL("SELECT count(*) FROM {}").format(view)
    changed = sql.SQL("SELECT count(*) FROM {} WHERE name LIKE 'Grace %'").format(view)
    with (
        connector.connect() as connection,
        psycopg.connect(stack.endpoints.postgres, autocommit=True) as stored,
        process(["-m", "headwater.projections"], variables, folder / "projections.log"),
    ):
        connection.execute(FILL, (rows,))
        eventually(ready_file(log, EVERYTHING).exists, "the read side is up", LIMIT_S)
        start = time.perf_counter()
        connector.put()
        _wait(stored, copied, rows)
        if name == "cdc_throughput":
            start = time.perf_counter()
            _change(connection, rows)
            _wait(stored, changed, rows)
        return time.perf_counter() - start


def _change(connection: psycopg.Connection[Any], rows: int) -> None:
    for first in range(1, rows + 1, IN_A_TRANSACTION):
        connection.execute(CHANGE, (first, first + IN_A_TRANSACTION - 1))


def _wait(stored: psycopg.Connection[Any], counting: sql.Composed, rows: int) -> None:
    def are_there() -> bool:
        found = stored.execute(counting).fetchone()
        return found is not None and found[0] == rows

    eventually(are_there, f"{rows:,} rows are in the view", LIMIT_S, every_s=0.5)


def _connect_mb() -> int:
    """The resident memory of Kafka Connect."""
    found = [0]
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("ConnectDistributed" in word for word in child.cmdline()):
                found.append(int(child.memory_info().rss / 1e6))
    return max(found)


class _Counted:
    """Counts the committed records of the customers, from the first on."""

    def __init__(self, log: LogSettings) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": log.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        topic = log.topic(Customer.topic())
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(log.partitions)])

    def wait(self, records: int) -> None:
        """Return once so many more records were read."""
        deadline = time.monotonic() + LIMIT_S
        while records > 0:
            assert time.monotonic() < deadline, f"{records:,} records did not come"
            records -= len(self._consumer.consume(READ_AT_ONCE, 0.2))

    def close(self) -> None:
        self._consumer.close()
