"""A Kafka Connect, a database and a topic of signals in memory, for the operators of a source."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.eventlog.capturing import Captured, Source, control_topics, operated, operating, reconciling, sweeping
from headwater.eventlog.capturing.connector import connector_config
from headwater.eventlog.capturing.control_topics import ControlTopics
from headwater.eventlog.capturing.database import Checked, Layout, Missed, Server, Standing
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import SIGNAL, TABLES, ConnectorState, all_queued, without_tables
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.memory import MemoryLog

RUNNING, PAUSED, STOPPED = (
    ConnectorState("RUNNING", "RUNNING"), ConnectorState("PAUSED", "PAUSED"), ConnectorState("STOPPED", "")
)  # fmt: skip


class Person(Captured, table="public.people", key="id"):
    id: int


class Place(Captured, table="public.places", key="id"):
    id: int


PEOPLE = Source(name="crm", tables=(Person,))
BOTH = Source(name="crm", tables=(Person, Place))


class Killed(BaseException):
    pass


class World:
    """What operators of the source `crm` work on.

    A task that runs or is paused keeps its configuration when another is registered, as it does for a time in Connect.

    reports: its notifications. stored_offset: where it goes on.
    is_held: another command works with the connector. apart: tables whose changes may lack values. gone: keys of rows
    that are no more.
    sent: the notes, each with its key. told: the tables of each time that it was told to read some. read: the tables
    that tasks have read again. is_slow: they do not come to that.
    """

    def __init__(self) -> None:
        self.configs: dict[str, str] | None = None
        self.of_task: dict[str, str] = {}
        self.read: list[str] = []
        self.connector = RUNNING
        self.dies_after_register = False
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.told: list[list[str]] = []
        self.is_slow = False
        self.said: list[str] = []
        self.log = MemoryLog(partitions=2)
        self.database = "postgresql://reader@db/crm"
        self.reports: list[bytes] = []
        self.stored_offset: dict[str, Any] | None = {"lsn": 1}
        self.skipped: str | None = None
        self.found_layouts: dict[str, Layout] = {}
        self.uncompared: dict[str, str] = {}
        self.captured = True
        self.past: dict[str, Any] | None = None
        self.refused: str | None = None
        self.warned: list[str] = []
        self.left: dict[int, str] = {}
        self.found_server: Server | None = Server("7001", 17)
        self.is_held = False
        self.apart: list[type[Captured]] = []
        self.gone = set[str]()

    def operator(self, source: Source) -> Operator:
        variables = {
            source.database: self.database,
            "HEADWATER_ENVIRONMENT": "test",
            "HEADWATER_MODULES": "crm",
        }
        settings = SourceSettings.from_environment(source, variables)
        return Operator(source, settings, self, self.said.append)  # type: ignore[arg-type]

    def capture(self, source: Source) -> None:
        """Let the source be captured as declared."""
        self.configs = self.of_task = connector_config(source, self.operator(source).settings, 18)

    def send(self, key: str, document: Mapping[str, Any]) -> None:
        self.sent.append((key, dict(document)))

    def execute(self) -> None:
        """Let the task read the tables in the offset, as far as it knows them."""
        offset = self.stored_offset or {}
        known = self.of_task["table.include.list"].replace("\\", "").split(",")
        if self.is_slow or any(table not in known for table in all_queued(offset)):
            return
        self.stored_offset = without_tables(offset)
        for table in all_queued(offset):
            self.read.append(table)
            self.scanned(table, offset[SIGNAL])

    def scanned(self, table: str, signal: str) -> None:
        """Let the connector report that a table is read."""
        more = {"scanned_collection": table, "status": "SUCCEEDED", "total_rows_scanned": "1"}
        kind = "Incremental Snapshot"
        report = {"aggregate_type": kind, "type": "TABLE_SCAN_COMPLETED", "id": signal, "additional_data": more}
        for each in (report, {"aggregate_type": kind, "type": "COMPLETED"}):
            self.reports.append(json.dumps(each).encode())

    def failed(self, table: str, signal: str) -> None:
        """Let the connector report that it could not read a table."""
        more = {"scanned_collection": table, "status": "SQL_EXCEPTION"}
        report = {"aggregate_type": "Incremental Snapshot", "type": "TABLE_SCAN_COMPLETED", "id": signal}
        self.reports.append(json.dumps({**report, "additional_data": more}).encode())

    def recent(self, topic: str, count: int = control_topics.RECENT) -> list[bytes]:
        if topic == "signals":
            return [json.dumps(each).encode() for _, each in self.sent][-count:]
        return self.reports[-count:] if topic == "notifications" else []

    @contextmanager
    def open(self, *_: object) -> Iterator[World]:
        yield self

    # the database
    def check(self, registered: bool) -> Checked:
        return Checked(18, ())

    def lost(self) -> None:
        pass

    def ahead(self) -> str | None:
        return self.skipped

    def identity(self) -> Server | None:
        return self.found_server

    def promoted(self, timeline: int) -> str | None:
        return self.left.get(timeline)

    def clock_s(self) -> float:
        return time.time()

    def warnings(self) -> list[str]:
        return self.warned

    def layouts(self) -> dict[str, Layout]:
        return self.found_layouts

    def missed(self, was: Layout, now: Layout) -> list[Missed]:
        return PostgresDatabase.missed(was, now)

    def unchunked(self, table: type[Captured]) -> str | None:
        return self.uncompared.get(table.table)

    def read_apart(self) -> dict[type[Captured], str]:
        return {table: f"ALTER {table.table}" for table in self.apart}

    def absent(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> list[int]:
        return [number for number, (key,) in enumerate(keys) if key in self.gone]

    def condition(self, table: type[Captured], keys: Sequence[Sequence[str]]) -> str:
        return ", ".join(key for (key,) in keys)

    def plan(self, table: type[Captured], where: str) -> None:
        if self.refused:
            raise SourceProblem("crm", self.refused)

    def standing(self, is_running: bool) -> Standing:
        return Standing()

    def preparations(self) -> list[str]:
        return []

    def prepare(self) -> None:
        pass

    def beat(self) -> None:
        pass

    def has_captured(self, place: Mapping[str, Any], stored: object) -> bool:
        return self.captured

    def past_statements(self, stored: object) -> dict[str, Any] | None:
        return self.past

    def place(self) -> dict[str, Any]:
        return {}

    def hold(self) -> bool:
        return not self.is_held

    def still_holds(self) -> bool:
        return True

    # Kafka Connect
    def config(self, connector: str) -> dict[str, str] | None:
        return self.configs

    def offset(self, connector: str) -> dict[str, Any] | None:
        return self.stored_offset

    def has_plugin(self, name: str) -> bool:
        return True

    def problems(self, connector: str, config: Mapping[str, str]) -> list[str]:
        return []

    def register(self, connector: str, config: Mapping[str, str]) -> None:
        self.configs = dict(config)
        if self.dies_after_register:
            raise Killed

    def state(self, connector: str) -> ConnectorState:
        return self.connector

    def stop(self, connector: str) -> None:
        self.connector = STOPPED

    def pause(self, connector: str) -> None:
        self.connector = PAUSED

    def change_offset(self, connector: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        assert self.connector is STOPPED, "Connect refuses it otherwise"
        offset = self.stored_offset or {}
        before = json.loads(offset.get(TABLES, "[]"))
        self.stored_offset = dict(change(offset))
        entries = json.loads(self.stored_offset.get(TABLES, "[]"))
        if new := [entry[f"{TABLES}_id"] for entry in entries if entry not in before]:
            self.told.append(new)

    def resume(self, connector: str) -> None:
        if self.dies_after_register:
            raise Killed
        if self.connector is STOPPED:
            self.of_task = self.configs or {}
        self.connector = RUNNING
        self.execute()


class Partitioned:
    """A log whose topics have so many partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def stored_ends(self, _topic: str) -> dict[int, int]:
        return dict.fromkeys(range(self._partitions), 0)

    def close(self) -> None:
        pass


def world_in_memory(monkeypatch: pytest.MonkeyPatch) -> World:
    """Kafka Connect, a database and a topic of signals, in memory; `people` are captured."""
    made = World()
    monkeypatch.setattr(PostgresDatabase, "open", lambda *_: made.open())
    monkeypatch.setattr(ControlTopics, "_send", made.send)
    monkeypatch.setattr(ControlTopics, "_recent", made.recent)
    for name in ("missing_topics", "prepare_topics"):
        module = operating if hasattr(operating, name) else reconciling
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(control_topics, "KafkaLog", lambda _: made.log)
    monkeypatch.setattr(sweeping, "KafkaLog", lambda _: Partitioned(2))
    monkeypatch.setattr(operated, "RUNNING_S", 0.0)
    monkeypatch.setattr(operated, "HOLD_S", 0.0)
    made.capture(PEOPLE)
    return made


def problems(world: World) -> list[str]:
    """What `status` says of the rows of both tables."""
    return world.operator(BOTH).rows_not_as_declared()
