"""A real Connect worker with databases to capture, and the topics of captured tables as Kafka has them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import httpx
import psycopg
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from headwater.compose.samples.shop_database import create_shop
from headwater.compose.stack import Stack
from headwater.eventlog.capturing import Captured, Column, Hashed, Kind, Source, Truncated
from headwater.eventlog.capturing.changes import Change, ChangeDecoder
from headwater.eventlog.capturing.connector import connector_config
from headwater.eventlog.capturing.control_topics import last_snapshot
from headwater.eventlog.capturing.kafka_connect import REBALANCING, KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames, source_topics
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.settings import LogSettings
from tests.support.databases import drop_database
from tests.support.local_http import local_http
from tests.support.processes import ends_of
from tests.support.states import differences
from tests.support.waiting import BOUND_S, Latest, eventually

SALT = "salt"
SILENT_S = 30.0
OWN_SETTINGS = tuple(
    f"DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET {name} = %L', current_database(), '{value}'); END$$"
    for name, value in {
        "bytea_output": "escape",
        "intervalstyle": "sql_standard",
        "datestyle": "SQL, DMY",
        "extra_float_digits": "-15",
        "timezone": "Asia/Kathmandu",
    }.items()
)
"""Settings of a database: they change how PostgreSQL writes values, and must not change what is captured."""
Row = Mapping[str, Any]


class Record(NamedTuple):
    """A committed record: key and value are what its JSON says."""

    key: Any
    value: Any
    change: Change


class Topic:
    """The committed records of a captured table, and what a reader makes of them: the last row of each key."""

    def __init__(self, log: LogSettings, table: type[Captured]) -> None:
        self.table = table
        self.records: list[Record] = []
        self.rows: dict[str, Row] = {}
        self._bootstrap = log.bootstrap
        self._decoder = ChangeDecoder(table)
        self._next = {(log.topic(table.topic()), partition): 0 for partition in range(log.partitions)}

    def read(self) -> list[Record]:
        """Read to the end of the topic; returns all records so far, those of a key in their order."""
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
        unread = set(self._next)
        deadline = time.monotonic() + BOUND_S
        while unread:
            assert time.monotonic() < deadline, f"not read to the end: {unread}"
            with closing(Consumer(settings)) as consumer:
                consumer.assign([TopicPartition(*place, self._next[place]) for place in unread])
                # a client that finds no broker for that long may never find one
                while unread and (message := consumer.poll(SILENT_S)) is not None:
                    place, error = (message.topic() or "", message.partition() or 0), message.error()
                    if error is None:
                        self._next[place] = (message.offset() or 0) + 1
                        self._add(message.key(), message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(place)
        return self.records

    def has_more_than(self, number: int) -> bool:
        """Whether there are more records by now."""
        return len(self.read()) > number

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        change = self._decoder.decode(key, value)
        self.records.append(Record(key and json.loads(key), value and json.loads(value), change))
        if change.row is None:
            self.rows.pop(change.key, None)
        else:
            old = self.rows.get(change.key, {})
            kept = {name: old[name] for name in change.unchanged if name in old}
            self.rows[change.key] = {**change.row, **kept}

    def comparable(self) -> dict[str, Row]:
        """The rows, with times as Python has them: PostgreSQL and Debezium write fractions of a second differently."""
        return self._comparable(self.rows)

    def compacted(self) -> dict[str, Row]:
        """The rows in the last record of each key, which are what compaction leaves, as `comparable` has them."""
        last = {record.change.key: record.change.row for record in self.records}
        return self._comparable({key: row for key, row in last.items() if row is not None})

    def _comparable(self, rows: Mapping[str, Row]) -> dict[str, Row]:
        times = [name for name, column in self.table.columns.items() if column.kind is Kind.TIMESTAMP]
        return {
            key: {**row, **{name: datetime.fromisoformat(row[name]) for name in times if row.get(name)}}
            for key, row in rows.items()
        }

    def twice(self) -> list[Record]:
        """Records of a change that the topic has already, by its place in the database's log."""
        seen, found = set(), []
        for record in self.records:
            if record.change.position and record.change.position.order:
                place = (record.change.position, record.change.key, record.change.operation)
                if place in seen:
                    found.append(record)
                seen.add(place)
        return found


@dataclass(frozen=True)
class Connector:
    """A source whose connector can be registered with the stack's worker, and its database.

    variables: the environment of `headwater sources` for it. owner: how the application connects to it.
    config: the connector's, as `headwater sources` makes it.
    """

    stack: Stack
    source: Source
    names: SourceNames
    settings: SourceSettings
    variables: Mapping[str, str]
    owner: str
    config: Mapping[str, str]

    @property
    def log(self) -> LogSettings:
        """Where the topics are."""
        return self.settings.log

    @property
    def _url(self) -> str:
        return f"{self.stack.endpoints.connect}/connectors/{self.names.connector}"

    def put(self, **changes: str) -> None:
        """Register the connector, or change its settings, written with `_` for `.`."""
        changed = {name.replace("_", "."): value for name, value in changes.items()}
        answer = self.ask("PUT", "config", json={**self.config, **changed})
        assert answer.is_success, answer.text

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """What the worker answers about the connector, once it does not distribute its connectors anew."""
        last = [""]

        def answered() -> httpx.Response | None:
            try:
                answer = self._once(method, path, **options)
            except httpx.TransportError as error:
                last[0] = repr(error)
                return None
            last[0] = answer.text
            return None if answer.status_code == REBALANCING or answer.is_server_error else answer

        awaited = Latest(lambda: f"the worker answers {method} {path}; its last answer: {last[0]}")
        answer = eventually(answered, awaited, every_s=0.2)
        assert answer is not None
        return answer

    def _once(self, method: str, path: str, **options: Any) -> httpx.Response:
        return local_http().request(method, f"{self._url}/{path}", **options)

    def task(self) -> dict[str, Any]:
        """The state of the one task, and its `trace` if it failed; the state is empty while there is no task."""
        try:
            answer = self._once("GET", "status")
        except httpx.HTTPError:
            return {"state": ""}
        tasks = answer.json()["tasks"] if answer.is_success else []
        return tasks[0] if tasks else {"state": ""}

    def stop(self) -> None:
        """Stop it, and return once it has no task any more; `resume` lets it go on."""
        self.ask("PUT", "stop")
        eventually(lambda: self.ask("GET", "status").json()["tasks"] == [], "it is stopped")

    def wait_running(self) -> None:
        """Return once the task runs, also if it failed before; the failure of the test has its last error."""
        errors = [""]

        def runs() -> bool:
            task = self.task()
            errors[0] = task.get("trace") or errors[0]
            return bool(task["state"] == "RUNNING")

        eventually(
            runs,
            Latest(lambda: f"{self.names.connector} runs; its last error: {errors[0] or 'none'}{self._logged()}"),
        )

    def wait_read(self) -> None:
        """Return once its task runs, and has read all tables for the first time."""
        self.wait_running()
        eventually(self.has_read, f"{self.names.connector} has read all tables")

    def has_read(self) -> bool:
        """Whether the initial snapshot is complete, as far as is known."""
        try:
            snapshot = last_snapshot(self.log, self.names)
        except LogUnavailable:  # Kafka starts again after a kill
            return False
        return snapshot is not None and not snapshot.is_running

    def _logged(self) -> str:
        return f"\n{ends_of(self.stack.settings.logs / 'connect.log')}"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection of the application that changes the database; every statement is a transaction."""
        return psycopg.connect(self.owner, autocommit=True, **options)

    def slot(self) -> dict[str, Any]:
        """The slot's row of `pg_replication_slots`, and the bytes of log that it `holds`."""
        query = """SELECT *, pg_current_wal_lsn() - restart_lsn AS holds, pg_current_wal_lsn() AS now
                   FROM pg_replication_slots WHERE slot_name = %s"""
        with psycopg.connect(self.stack.endpoints.postgres, row_factory=dict_row) as connection:
            return connection.execute(query, (self.names.slot,)).fetchone() or {}

    def topic(self, table: type[Captured]) -> Topic:
        """The topic of a table."""
        return Topic(self.log, table)

    def wait_equal(self, *topics: Topic, timeout_s: float = BOUND_S) -> None:
        """Return once what a reader of each topic has equals its table, and check that nothing came twice."""
        for topic in topics:
            with suppress(AssertionError):  # the comparison below says more
                eventually(partial(self.is_equal, topic), timeout_s=timeout_s, every_s=0.2)
            with self.connect() as connection:
                wrong = differences(topic.comparable(), rows_of(connection, topic.table))
            assert wrong == [], f"{topic.table.table}: {wrong}; its task: {self.task()}{self._logged()}"
            assert not topic.twice()

    def has_all(self, topic: Topic) -> bool:
        """Whether a reader of the topic has every row of its table now; it may have others too."""
        topic.read()
        with self.connect() as connection:
            return rows_of(connection, topic.table).items() <= topic.comparable().items()

    def is_equal(self, topic: Topic) -> bool:
        """Whether what a reader of the topic has equals its table now."""
        topic.read()
        with self.connect() as connection:
            return topic.comparable() == rows_of(connection, topic.table)

    def sweep(self) -> None:
        """Delete rows that the tables no longer have from their topics, as `headwater sources sweep` does."""
        with Operator(self.source, self.settings, KafkaConnect(self.settings.connect), print) as operator:
            operator.sweep()

    def remove(self) -> None:
        """Remove the connector, its topics, and the database with its slot."""
        self.ask("DELETE", "")
        client = AdminClient({"bootstrap.servers": self.log.bootstrap})
        topics = [name for name in client.list_topics(timeout=240).topics if name.startswith(self.log.environment)]
        for done in client.delete_topics(topics).values():
            done.result()
        drop_database(self.stack.endpoints.postgres, self.log.environment)


@contextmanager
def captured(stack: Stack, source: Source, statements: Sequence[str] = ()) -> Iterator[Connector]:
    """A source with a database of its own: the shop's tables, and what `statements` add. Nothing is registered yet."""
    environment = f"t_{uuid.uuid4().hex[:12]}"
    variables = {
        "HEADWATER_ENVIRONMENT": environment,
        "HEADWATER_MODULES": "listings",
        "HEADWATER_KAFKA": stack.endpoints.kafka,
        "HEADWATER_CONNECT": stack.endpoints.connect,
        "HEADWATER_PARTITIONS": "2",
        source.database: make_conninfo(stack.endpoints.postgres, user="shop_capture", dbname=environment),
        source.salt: SALT,
    }
    settings = SourceSettings.from_environment(source, variables)
    names = SourceNames.of(source, environment)
    owner = create_shop(stack.endpoints.postgres, environment)
    with psycopg.connect(owner) as connection:
        for statement in statements:
            connection.execute(statement)
        tables = ", ".join(table.table for table in source.tables)
        connection.execute(f"CREATE PUBLICATION {names.slot} FOR TABLE {tables}")
    admin.prepare_topics(settings.log, source_topics(source, settings.log))
    made = Connector(stack, source, names, settings, variables, owner, connector_config(source, settings, 18))
    try:
        yield made
    finally:
        made.remove()


def rows_of(connection: psycopg.Connection[Any], table: type[Captured]) -> dict[str, Row]:
    """The table's rows by key, as `Topic.comparable` has them, but read by SQL."""
    columns = ", ".join(f"{_expression(column)} AS {name}" for name, column in table.columns.items())
    found: dict[str, Row] = {}
    with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SET LOCAL intervalstyle = iso_8601; SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = ISO; "
            "SET LOCAL extra_float_digits = 1"
        )
        for row in cursor.execute(f"SELECT {columns} FROM {table.table}"):
            key = [row[name] for name in table.key]
            found[str(key[0]) if len(key) == 1 else json.dumps(key, separators=(",", ":"))] = row
    return found


AS_TEXT = frozenset({Kind.DECIMAL, Kind.INTERVAL, Kind.UUID, Kind.ENUM, Kind.DATE, Kind.TIME})


def _expression(column: Column) -> str:
    """SQL for the value that a reader of the topic should have."""
    match column:
        case Column(mask=Hashed()):
            return f"encode(sha256(convert_to('{SALT}' || {column.name}, 'UTF8')), 'hex')"
        case Column(mask=Truncated(characters)):
            return f"left({column.name}, {characters})"
        case Column(kind=Kind.BYTES):
            return f"replace(encode({column.name}, 'base64'), E'\\n', '')"
        case Column(kind=Kind.TIMESTAMP):
            return f"{column.name}::timestamptz"
        case Column(kind=Kind.ARRAY, item=item) if item in AS_TEXT:
            return f"{column.name}::text[]"
        case Column(kind=kind) if kind in AS_TEXT:
            return f"{column.name}::text"
        case _:
            return column.name
