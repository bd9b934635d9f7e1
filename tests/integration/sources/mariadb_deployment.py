"""A deployment that captures a MariaDB server, its shell, and a client that changes its tables."""

from __future__ import annotations

import json
import random
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Self
from urllib.parse import quote

import pymysql
from typer.testing import CliRunner, Result

from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Kind
from headwater.eventlog.capturing.cli import app
from headwater.eventlog.settings import LogSettings
from tests.integration.sources.captured import SALT, Row, Topic
from tests.integration.sources.crm import PASSWORD
from tests.integration.sources.mariadb_server import HOST, MariaDb
from tests.support.processes import ends_of
from tests.support.states import differences
from tests.support.waiting import BOUND_S, eventually


@dataclass
class Deployment:
    """A deployment that captures the database, and its shell."""

    stack: Stack
    server: MariaDb
    environment: str

    def variables(self, password: str = PASSWORD) -> dict[str, str]:
        return {
            "HEADWATER_ENVIRONMENT": self.environment,
            "HEADWATER_MODULES": "tests.integration.sources.crm",
            "HEADWATER_KAFKA": self.stack.endpoints.kafka,
            "HEADWATER_CONNECT": self.stack.endpoints.connect,
            "HEADWATER_PARTITIONS": "2",
            "HEADWATER_CRM_DATABASE": f"mariadb://capture:{quote(password)}@{HOST}:{self.server.port}",
            "HEADWATER_CRM_SALT": SALT,
        }

    def run(self, *words: str, **variables: str) -> Result:
        """Run a command; whatever happens, no exception leaves it."""
        result = CliRunner().invoke(app, words, env={**self.variables(), **variables})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.stderr
        return result

    def works(self, *words: str, **variables: str) -> str:
        result = self.run(*words, **variables)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, *words: str, **variables: str) -> str:
        """Run a command that fails; returns what it says."""
        result = self.run(*words, **variables)
        assert result.exit_code == 1, result.output
        return result.stderr

    def status(self) -> dict[str, Any]:
        result = self.run("status", "--json")
        (source,) = json.loads(result.stdout)["sources"]
        assert result.exit_code == (0 if source["healthy"] else 3)
        return dict(source)

    def topic(self, table: type[Captured]) -> Topic:
        return Topic(
            LogSettings(environment=self.environment, bootstrap=self.stack.endpoints.kafka, partitions=2), table
        )

    def rows(self, table: type[Captured]) -> dict[str, Row]:
        """The rows of a table by key, as `Topic.comparable` has them, but read by SQL."""
        found: dict[str, Row] = {}
        for row in self.server.sql(f"SELECT {', '.join(table.columns)} FROM {table.table}"):
            values = {name: _value(table.columns[name].kind, value) for name, value in row.items()}
            key = [values[name] for name in table.key]
            found[str(key[0]) if len(key) == 1 else json.dumps(key, separators=(",", ":"))] = values
        return found

    def is_equal(self, topic: Topic) -> bool:
        topic.read()
        return topic.comparable() == self.rows(topic.table)

    def wait_equal(self, *topics: Topic) -> None:
        """Return once what a reader of each topic has equals its table, and check that nothing came twice."""
        for topic in topics:
            with suppress(AssertionError):  # the comparison below says more
                eventually(partial(self.is_equal, topic), every_s=0.2)
            if wrong := differences(topic.comparable(), self.rows(topic.table)):
                logged = ends_of(self.stack.settings.logs / "connect.log")
                raise AssertionError(f"{topic.table.table}: {wrong}; {self.status()}\n{logged}")
            assert topic.compacted() == topic.comparable()
            assert not topic.twice()


def _value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Kind.DECIMAL:
            return str(value)
        case Kind.BOOLEAN:
            return bool(value)
        case Kind.TIMESTAMP:
            return datetime.fromisoformat(f"{value}+00:00")
        case _:
            return value


class Client(threading.Thread):
    """Makes random transactions within a `with` block; connects again whenever the server goes away."""

    def __init__(self, server: MariaDb, seed: int) -> None:
        super().__init__(name="client", daemon=True)
        self.made = 0
        self._server, self._chance = server, random.Random(seed)
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.is_set():
            try:
                with closing(self._server.connect()) as connection:
                    while not self._stop_now.wait(0.01):
                        with connection.cursor() as cursor:
                            self._transaction(cursor)
                        self.made += 1
            except (pymysql.OperationalError, pymysql.InterfaceError):
                self._stop_now.wait(0.1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join(BOUND_S)
        assert not self.is_alive()

    def go_on(self) -> None:
        """Return once it has made some more transactions."""
        before = self.made
        eventually(lambda: self.made > before + 30 or not self.is_alive(), "the client goes on")
        assert self.is_alive(), "the client has ended"

    def _transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        for number in range(self._chance.randrange(1, 5)):
            cursor.execute(f"SAVEPOINT s{number}")
            self._change(cursor)
            if self._chance.random() < 0.15:
                cursor.execute(f"ROLLBACK TO SAVEPOINT s{number}")
        cursor.execute("ROLLBACK" if self._chance.random() < 0.1 else "COMMIT")

    def _change(self, cursor: Any) -> None:
        chance = self._chance
        number, other = chance.randrange(1, 60), chance.randrange(1, 60)
        name = chance.choice(("Ada", "Bo", "Çelik", "李", "😀"))
        limit = Decimal(chance.randrange(-(10**6), 10**6)) / 100
        country, large = chance.choice(("DE", "FR")), 2**64 - 1 - chance.randrange(20)
        kind = chance.choice(("put", "put", "change", "change", "delete", "renumber", "place", "place", "leave"))
        match kind:
            case "put":
                cursor.execute(
                    "REPLACE INTO crm.people (id, name, balance, is_active, note, changed_at) "
                    "VALUES (%s, %s, %s, %s, %s, NOW(6))",
                    (number, name, limit, chance.random() < 0.5, chance.choice((None, "x" * 5_000))),
                )
            case "change":
                cursor.execute("UPDATE crm.people SET balance = %s, name = %s WHERE id < %s", (limit, name, number))
            case "delete":
                cursor.execute("DELETE FROM crm.people WHERE id = %s", (number,))
            case "renumber":
                cursor.execute("UPDATE IGNORE crm.people SET id = %s WHERE id = %s", (other, number))
            case "place":
                cursor.execute("REPLACE INTO crm.places VALUES (%s, %s, %s)", (country, large, name[:20]))
            case _:
                cursor.execute("DELETE FROM crm.places WHERE country = %s AND number = %s", (country, large))
