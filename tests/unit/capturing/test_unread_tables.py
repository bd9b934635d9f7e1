"""Tables whose rows are missing, with topics of signals and notifications in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.eventlog.capturing import Captured, Source, control_topics
from headwater.eventlog.capturing.control_topics import ControlTopics
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.reconciling import Findings, find_unread, note_first_snapshot
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings

INITIAL, INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"
AFTER, DURING = {"lsn": 1}, {"lsn": 1, "snapshot": "INITIAL"}


class Person(Captured, table="public.people", key="id"):
    id: int


class Place(Captured, table="public.places", key="id"):
    id: int


SOURCE = Source(name="crm", tables=(Person, Place))
NAMES = SourceNames.of(SOURCE, "test")
SETTINGS = LogSettings(environment="test", partitions=2)


class World:
    """What is in the topics. signals: and notes. reports: of the connector. log: the topics of the tables."""

    def __init__(self) -> None:
        self.signals: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.log = MemoryLog(partitions=2)
        self.control: ControlTopics

    def recent(self, topic: str, _count: int = 0) -> list[bytes]:
        return [json.dumps(each).encode() for each in (self.signals if topic == "signals" else self.reports)]

    def send(self, _key: str, document: Mapping[str, Any]) -> None:
        self.signals.append(json.loads(json.dumps(document)))

    def report(self, kind: str, state: str, **more: str) -> None:
        self.reports.append({"aggregate_type": kind, "type": state, "additional_data": more})

    def scanned(self, table: str, status: str = "SUCCEEDED", rows: int = 1, kind: str = INITIAL) -> None:
        self.report(kind, "TABLE_SCAN_COMPLETED", scanned_collection=table, status=status, total_rows_scanned=str(rows))

    def store(self, table: type[Captured], key: str = '{"id":1}') -> None:
        self.log.submit(Entry(table.topic(), key, b"{}", 0), 1).result()

    def unread(self, offset: Mapping[str, Any] | None = AFTER) -> Findings:
        """What is missing; the same when it is looked for again."""
        found = find_unread(self.control, SOURCE, lambda: offset)
        assert find_unread(self.control, SOURCE, lambda: offset) == found
        return found

    def never(self, offset: Mapping[str, Any] | None = AFTER) -> set[str]:
        return set(self.unread(offset).never)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(ControlTopics, "_recent", made.recent)
    monkeypatch.setattr(ControlTopics, "_send", made.send)
    monkeypatch.setattr(control_topics, "KafkaLog", lambda _: made.log)
    made.control = ControlTopics(SETTINGS, NAMES)
    return made


def problems(found: Findings) -> list[str]:
    return [problem for table in SOURCE.tables if (problem := found.problem_of(table.table))]


def test_tables_are_read_once_their_ends_were_reported_and_their_rows_are_there(world: World) -> None:
    for table in (Person, Place):
        world.store(table, "heartbeat/1")
    note_first_snapshot(world.control, SOURCE)
    assert world.never(None) == world.never(DURING) == set(), "the snapshot is not over"
    assert world.never() == {"public.people", "public.places"}
    world.scanned("public.people")
    world.scanned("public.places", rows=0)
    assert world.never() == {"public.people"}, "the connector failed before the rows were stored"
    world.store(Person, "heartbeat/1")
    assert world.never() == {"public.people"}
    world.store(Person)
    assert world.never() == set()
    world.reports.clear()
    assert world.never() == set(), "it is remembered although the reports have aged out"


def test_rows_of_an_earlier_capture_are_no_rows_of_this_one(world: World) -> None:
    world.store(Person)
    note_first_snapshot(world.control, SOURCE)
    world.scanned("public.people")
    world.scanned("public.places", "EMPTY")
    assert world.never() == {"public.people"}
    world.store(Person)
    assert world.never() == set()


def test_a_snapshot_that_never_happened_is_named_with_what_helps(world: World) -> None:
    note_first_snapshot(world.control, SOURCE)
    world.report(INITIAL, "STARTED")
    world.report(INITIAL, "SKIPPED")
    for offset in ({}, {"transaction_id": None}, AFTER):
        assert world.never(offset) == {"public.people", "public.places"}
    (problem, _) = problems(world.unread())
    assert problem == (
        'rows of table "public.people" were never read, because its connector failed before its first snapshot was '
        "stored: run headwater sources remove crm, then apply, which reads all tables"
    )
    world.control.note("execute-snapshot", ["public.people"])
    assert world.never() == {"public.places"}, "it was read again by hand"


def test_a_table_that_failed_is_remembered_until_it_is_read(world: World) -> None:
    world.scanned("public.people", kind=INCREMENTAL)
    world.scanned("public.people", "SQL_EXCEPTION", kind=INCREMENTAL)
    world.scanned("public.places", "UNKNOWN_SCHEMA", kind=INCREMENTAL)
    world.report(INCREMENTAL, "COMPLETED")
    failed = {"public.people": "SQL_EXCEPTION", "public.places": "UNKNOWN_SCHEMA"}
    assert world.unread().failed == failed
    assert len(world.signals) == 1
    world.reports.clear()
    assert world.unread().failed == failed
    (problem, _) = problems(world.unread())
    assert problem.startswith('rows of table "public.people" were not read: its last snapshot failed (SQL_EXCEPTION)')
    world.scanned("public.people", "EMPTY", kind=INCREMENTAL)
    assert world.unread().failed == {"public.places": "UNKNOWN_SCHEMA"}
    world.reports.clear()
    assert world.unread().failed == {"public.places": "UNKNOWN_SCHEMA"}
