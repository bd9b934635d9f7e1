"""A database of a shop, captured by a worker of Kafka Connect that runs beside both versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from compose.parts import connect
from compose.settings import StackSettings
from compose.stack import connector_jars, fetch_jars
from eventlog.capturing.kafka_connect import KafkaConnect
from headwater.samples.shop.database import create_shop
from projections.supervision.supervisor import Supervisor
from tests.conftest import listens
from tests.support.databases import drop_database
from tests.support.local_http import local_http
from tests.support.waiting import BOUND_S

SOURCE = "crm"
"""As the versions' module declares it."""
ADA = "1"
"""The key of the customer."""


@dataclass(frozen=True)
class Shop:
    """The database. name: of it and of the deployment. owner: how the application connects to it. worker: of Connect;
    None if one ran already."""

    stack: StackSettings
    name: str
    owner: str
    worker: Supervisor | None

    @property
    def variables(self) -> Mapping[str, str]:
        """What programs need to capture it."""
        database = make_conninfo(self.stack.endpoints.postgres, user="shop_capture", dbname=self.name)
        return {f"HEADWATER_{SOURCE.upper()}_DATABASE": database}

    def wait(self) -> None:
        """Wait until the worker can be given a connector."""
        if self.worker is not None:
            self.worker["connect"].wait_healthy()

    def fill(self) -> None:
        """Add the customer."""
        self._run("INSERT INTO customers (public_id, name, email) VALUES (gen_random_uuid(), '', 'ada@example.org')")

    def name_customer(self, name: str) -> None:
        """Give the customer this name."""
        self._run("UPDATE customers SET name = %s", name)

    def _run(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.owner, autocommit=True) as connection:
            connection.execute(statement, values)

    def remove(self) -> None:
        """Remove the connector, its slot, and the database."""
        self.wait()
        names = local_http().get(f"{self.stack.endpoints.connect}/connectors").json()
        with closing(KafkaConnect(self.stack.endpoints.connect, retry_s=BOUND_S)) as worker:
            for each in names:
                if each.startswith(f"{self.name}."):
                    worker.remove(each)
        drop_database(self.stack.endpoints.postgres, self.name)


@contextmanager
def captured_shop(stack: StackSettings, name: str) -> Iterator[Shop]:
    """A database of this name, and a worker that starts; afterwards, there is neither."""
    with ExitStack() as after:
        worker = None
        if not listens(stack.ports.connect):
            jars = fetch_jars(("connect",))
            spec = connect.spec(stack, jars["connect"], connector_jars(jars))
            worker = Supervisor([replace(spec, after=())])  # Kafka and PostgreSQL run already
            after.callback(worker.stop)
            worker.begin("connect")
        shop = Shop(stack, name, create_shop(stack.endpoints.postgres, name), worker)
        after.callback(shop.remove)
        yield shop
