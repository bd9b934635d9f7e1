"""Rows that are to be read after `apply`, with a Kafka Connect, a database and a topic of signals in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from eventlog.capturing import (
    Captured,
    Source,
    connector_states,
    control_notes,
    control_topics,
    operating,
    planning,
    source_status,
    unread_tables,
)
from eventlog.capturing.connector import connector_config
from eventlog.capturing.errors import ConnectError, SourceProblem
from eventlog.capturing.kafka_connect import ConnectorState
from eventlog.capturing.naming import SourceNames, source_topics
from eventlog.capturing.operating import Operator
from eventlog.capturing.ports import Checked, Layout, Missed, Part, Server, Standing
from eventlog.capturing.postgres.engine import PostgresEngine
from eventlog.capturing.postgres.layouts import missed
from eventlog.capturing.settings import SourceSettings
from eventlog.capturing.source_status import SourceStatus
from eventlog.capturing.sweeping import Swept
from eventlog.memory import MemoryLog
from eventlog.ports import Entry

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
    sent: the records in its topic of signals, each with its key. read: the tables that tasks have read again.
    """

    def __init__(self) -> None:
        self.configs: dict[str, str] | None = None
        self.of_task: dict[str, str] = {}
        self.read: list[str] = []
        self.connector = RUNNING
        self.dies_after_register = False
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.waiting: list[dict[str, Any]] = []
        self.told_while_stopped: list[bool] = []
        self.said: list[str] = []
        self.log = MemoryLog(partitions=2)
        self.database = "postgresql://reader@db/crm"
        self.reports: list[bytes] = []
        self.stored_offset: dict[str, Any] | None = {"lsn": 1}
        self.skipped: str | None = None
        self.found_layouts: dict[str, Layout] = {}
        self.uncompared: dict[str, str] = {}
        self.captured = self.are_signals_kept = True
        self.warned: list[str] = []
        self.left: dict[int, str] = {}
        self.found_server: Server | None = Server("7001", 17)

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

    @property
    def signals(self) -> list[Sequence[str]]:
        """The tables in each signal to the connector."""
        return [each["data"]["data-collections"] for key, each in self.sent if key == "test.cdc.crm"]

    def send(self, _log: object, _names: object, key: str, document: Mapping[str, Any]) -> None:
        self.sent.append((key, dict(document)))
        if key == "test.cdc.crm":
            self.told_while_stopped.append(self.connector is STOPPED)
        if key == "test.cdc.crm" and self.connector is STOPPED:
            self.waiting.append(dict(document))
        elif key == "test.cdc.crm":
            self.execute(document)

    def execute(self, signal: Mapping[str, Any]) -> None:
        """Let the task read the tables in a signal, as far as it knows them."""
        known = self.of_task["table.include.list"].replace("\\", "").split(",")
        for table in signal["data"]["data-collections"]:
            if table in known:
                self.read.append(table)
                self.scanned(table, signal["id"])

    def scanned(self, table: str, signal: str) -> None:
        """Let the connector report that a table is read."""
        more = {"scanned_collection": table, "status": "SUCCEEDED", "total_rows_scanned": "1"}
        kind = "Incremental Snapshot"
        report = {"aggregate_type": kind, "type": "TABLE_SCAN_COMPLETED", "id": signal, "additional_data": more}
        for each in (report, {"aggregate_type": kind, "type": "COMPLETED"}):
            self.reports.append(json.dumps(each).encode())

    def recent(self, _log: object, topic: str, count: int = control_topics.RECENT) -> list[bytes]:
        if topic.endswith("signals"):
            return [json.dumps(each).encode() for _, each in self.sent][-count:]
        return self.reports[-count:] if topic.endswith("notifications") else []

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

    def warnings(self) -> list[str]:
        return self.warned

    def layouts(self) -> dict[str, Layout]:
        return self.found_layouts

    def missed(self, was: Layout, now: Layout) -> list[Missed]:
        return missed(was, now)

    def unchunked(self, table: type[Captured]) -> str | None:
        return self.uncompared.get(table.table)

    def standing(self, is_running: bool) -> Standing:
        return Standing()

    def preparations(self) -> list[str]:
        return []

    def prepare(self) -> None:
        pass

    def beat(self) -> None:
        pass

    def has_captured(self, place: Mapping[str, Any]) -> bool:
        return self.captured

    def place(self) -> dict[str, Any]:
        return {}

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

    def resume(self, connector: str) -> None:
        if self.connector is STOPPED:
            self.of_task = self.configs or {}
        self.connector = RUNNING
        while self.waiting:
            self.execute(self.waiting.pop(0))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(PostgresEngine, "open", lambda *_: made.open())
    monkeypatch.setattr(control_topics, "_send", made.send)
    monkeypatch.setattr(control_topics, "_recent", made.recent)
    monkeypatch.setattr(control_topics, "are_signals_kept", lambda *_: made.are_signals_kept)
    for name in ("missing_topics", "prepare_topics"):
        module = operating if hasattr(operating, name) else planning
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(unread_tables, "KafkaLog", lambda _: made.log)
    monkeypatch.setattr(connector_states, "RUNNING_S", 0.0)
    monkeypatch.setattr(connector_states, "STEADY_S", -1.0)
    made.capture(PEOPLE)
    return made


def problems(world: World) -> list[str]:
    status = SourceStatus("crm")
    source_status._look_at_rows(world.operator(BOTH), status)
    return status.problems


@pytest.mark.parametrize("kept", [True, False])
def test_a_table_that_is_declared_later_is_read_once(world: World, kept: bool) -> None:
    world.are_signals_kept = kept
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.signals == [["public.places"]]
    assert not world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).resume()
    assert world.signals == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []


def test_it_is_read_when_a_connector_that_was_paused_runs_again(world: World) -> None:
    """Not before: a task that is paused reads signals too, and does not know the table."""
    world.connector = PAUSED
    with pytest.raises(ConnectError, match="not RUNNING"):
        world.operator(BOTH).apply(dry_run=False)
    assert world.signals == []
    assert problems(world) == [
        'rows of table "public.places" were not read after it was declared: run headwater sources apply'
    ]
    world.operator(BOTH).resume()
    assert world.signals == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []
    assert not world.operator(BOTH).apply(dry_run=False)


@pytest.mark.parametrize("kept", [True, False])
def test_resume_tells_a_connector_while_it_is_stopped_if_it_reads_signals_then(world: World, kept: bool) -> None:
    """Debezium mixes the rows of two tables if changes come in at the moment when it is told."""
    world.connector, world.are_signals_kept = PAUSED, kept
    with pytest.raises(ConnectError, match="not RUNNING"):
        world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).resume()
    assert world.told_while_stopped == [kept]
    assert world.read == ["public.places"]


def test_it_is_read_by_the_next_apply_if_one_was_killed_after_it_changed_the_connector(world: World) -> None:
    world.dies_after_register = True
    with pytest.raises(Killed):
        world.operator(BOTH).apply(dry_run=False)
    world.dies_after_register = False
    assert world.operator(BOTH).apply(dry_run=True)
    assert world.said[-1] == "+ rows of public.places, which were not read after it was declared"
    assert world.signals == []
    assert world.connector is STOPPED
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.signals == [["public.places"]]
    assert world.read == ["public.places"]
    assert not world.operator(BOTH).apply(dry_run=False)


def test_another_snapshot_in_between_does_not_count(world: World) -> None:
    world.connector = PAUSED
    with pytest.raises(ConnectError):
        world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).snapshot([Person])
    world.operator(BOTH).snapshot([Place], "id < 9")
    world.connector = RUNNING
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.signals[2:] == [["public.places"]]
    assert world.read[-1] == "public.places"


def test_a_table_is_read_however_many_signals_were_sent_since_it_was_noted(world: World) -> None:
    operator = world.operator(BOTH)
    control_topics.note_unread(operator.settings.log, operator.names, ["public.places"])
    for _ in range(control_topics.RECENT):
        operator.snapshot([Person])
    assert operator.apply(dry_run=False)
    assert world.signals[-1] == ["public.places"]
    kept = {each.name: each.settings["retention.ms"] for each in source_topics(BOTH, operator.settings.log)[2:]}
    assert kept["cdc.crm.signals"] == "-1", "a connector that is stopped for long has not read them"


def test_a_table_that_is_no_longer_declared_is_not_read(world: World) -> None:
    control_topics.note_unread(world.operator(BOTH).settings.log, SourceNames("", ""), ["public.places"])
    assert not world.operator(PEOPLE).apply(dry_run=False)
    assert world.signals == []


def test_a_topic_of_signals_may_have_anything(world: World) -> None:
    operator = world.operator(BOTH)
    ours = ("unread", "first-snapshot", "failed", "read", "execute-snapshot", "server", "skipped-changes")
    for kind in ours:
        world.send(None, None, "x", {"type": kind})
    for document in (
        {"type": "unread", "data": {"data-collections": 7}},
        {"type": "failed", "data": {"data-collections": ["a"]}},
        {"type": "log", "data": {"message": "hello"}},
        {"type": 1},
        {},
    ):
        world.send(None, None, "x", document)
    assert control_topics.notes(operator.settings.log, operator.names) == control_notes.Notes()


def lost(world: World) -> list[str]:
    """What `status` says of the database, and `watch` of a connector that runs."""
    status = SourceStatus("crm", state="RUNNING")
    source_status._look_at_database(world.operator(PEOPLE), status)
    assert status.problems == ([found] if (found := world.operator(PEOPLE).find_lost()) else [])
    return status.problems


def test_an_offset_ahead_of_the_database_is_remembered_after_the_log_has_passed_it(world: World) -> None:
    assert not world.operator(PEOPLE).apply(dry_run=False)
    assert lost(world) == []
    world.skipped = "its log ends at 0/1"
    (problem,) = lost(world)
    assert problem == (
        "changes are missing (its log ends at 0/1): run headwater sources remove crm, then apply, which reads "
        "all tables again, then sweep, which deletes rows that the database does not have"
    )
    world.skipped = None
    assert lost(world) == [problem]
    with pytest.raises(SourceProblem, match=r"changes are missing \(its log ends at 0/1\)"):
        world.operator(PEOPLE).apply(dry_run=False)
    with pytest.raises(SourceProblem, match="changes are missing"):
        world.operator(PEOPLE).prepare_restart()
    noted = [document for _, document in world.sent if document["type"] == control_notes.SKIPPED_CHANGES]
    assert len(noted) == 1, "once is enough"


def test_another_server_is_named_and_one_that_pg_upgrade_made_is_not(world: World) -> None:
    assert lost(world) == [], "nothing was noted by an earlier release"
    world.operator(PEOPLE).apply(dry_run=True)
    assert world.sent == []
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = None
    assert lost(world) == [], "the role may not ask any more"
    world.found_server = Server("7002", 18)
    assert lost(world) == []
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = Server("7003", 18)
    (problem,) = lost(world)
    assert "this server has the system identifier 7003, and that which was captured had 7002" in problem


def test_a_promoted_standby_is_named_unless_it_has_all_that_was_captured(world: World) -> None:
    world.found_server = Server("7001", 17, timeline=1)
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = Server("7001", 17, timeline=2)
    assert lost(world) == [], "the connector had not passed the end of the earlier timeline"
    world.found_server = Server("7001", 17, timeline=3, is_guarded=True)
    world.left = {1: "no", 2: "its log has left timeline 2"}
    (problem,) = lost(world)
    assert problem.startswith("changes are missing (its log has left timeline 2): run ")
    world.left = {}
    assert lost(world) == [problem]


def test_a_promoted_standby_that_was_waited_for_has_all_that_was_captured(world: World) -> None:
    world.operator(PEOPLE).apply(dry_run=False)
    assert lost(world) == [], "an earlier release has noted no timeline"
    for timeline in (1, 2):
        world.found_server = Server("7001", 17, timeline, is_guarded=True)
        world.left = {1: "its log has left timeline 1"}
        assert lost(world) == []
    world.found_server, world.left = Server("7001", 17, 3), {2: "its log has left timeline 2"}
    assert lost(world) == [], "it was waited for until then"
    world.found_server, world.left = Server("7001", 17, 4), {3: "its log has left timeline 3"}
    assert lost(world) != []


def test_what_may_be_lost_in_a_failover_is_a_warning(world: World) -> None:
    world.warned = ["a standby that reads replication slot s may lack changes"]
    status = SourceStatus("crm", state="RUNNING")
    source_status._look_at_database(world.operator(PEOPLE), status)
    assert status.warnings == ["a standby that reads replication slot s may lack changes"]
    assert status.is_healthy
    world.operator(PEOPLE).apply(dry_run=True)
    assert "warning: a standby that reads replication slot s may lack changes" in world.said


def test_a_table_that_cannot_be_read_again_is_refused_with_what_to_do(world: World) -> None:
    world.uncompared = {"public.places": 'its key column "at" is timestamp'}
    refused = (
        'source "crm": the rows of table "public.places" cannot be read again while changes go on, because its key '
        'column "at" is timestamp: run headwater sources remove crm, then apply, which reads all again, then '
        "sweep"
    )
    before = world.configs
    for act in (lambda: world.operator(BOTH).apply(dry_run=False), lambda: world.operator(BOTH).snapshot([Place])):
        with pytest.raises(SourceProblem) as raised:
            act()
        assert str(raised.value) == refused
    assert world.sent == []
    assert world.configs is before
    world.operator(BOTH).snapshot([Person])
    control_topics.note_unread(world.operator(BOTH).settings.log, world.operator(BOTH).names, ["public.places"])
    world.connector = PAUSED
    with pytest.raises(SourceProblem) as raised:
        world.operator(BOTH).resume()
    assert str(raised.value) == refused
    assert world.connector is RUNNING, "its changes are captured"
    assert world.signals == [["public.people"]]


def test_a_secret_that_is_stored_in_plain_text_is_named_when_it_is(world: World) -> None:
    world.operator(BOTH).apply(dry_run=False)
    assert not any("plain text" in line for line in world.said)
    world.database = "postgresql://reader:hush@db/crm"
    world.operator(BOTH).apply(dry_run=False)
    (warning,) = [line for line in world.said if "plain text" in line]
    assert warning.startswith("warning: the password of the database will be stored in plain text by Kafka Connect")
    assert not any("hush" in line for line in world.said)
    world.database = "postgresql://reader:${env:CRM}@db/crm"
    world.said.clear()
    world.operator(BOTH).apply(dry_run=False)
    assert not any("plain text" in line for line in world.said)


PEOPLE_STORED = Layout(18, 100, {"100": Part("public.people", 7)}, {"id": (1, 23)}, {}, "5/1/6")
ADVICE = (
    ", of which the log of the database has no changes: run headwater sources apply, which reads its rows "
    "again, and deletes those that are gone"
)


def swept(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are swept from now on, each with a connector that is stopped."""
    tables: list[str] = []

    def sweep(_log: object, table: type[Captured], _database: object) -> Swept:
        assert world.connector is STOPPED
        tables.append(table.table)
        return Swept(1, 0)

    monkeypatch.setattr(operating, "sweep", sweep)
    return tables


def test_a_table_that_is_stored_otherwise_is_named_read_again_and_swept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = swept(world, monkeypatch)
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == [], "the first look of this release"
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, table=101)}
    named = [f'table "public.people" was replaced by another one of the same name{ADVICE}']
    assert problems(world) == named
    assert problems(world) == named
    assert world.operator(PEOPLE).apply(dry_run=True)
    assert problems(world) == named
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert world.read == tables == ["public.people"]
    assert problems(world) == []
    assert not world.operator(PEOPLE).apply(dry_run=False)


def test_what_was_found_is_known_until_it_is_mended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if `apply` ends after it has noted how the table is stored now, and the connector does not run."""
    tables = swept(world, monkeypatch)
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, table=101)}
    world.connector = PAUSED
    with pytest.raises(ConnectError, match="not RUNNING"):
        world.operator(PEOPLE).apply(dry_run=False)
    late, unswept = problems(world)
    assert "were not read" in late
    assert "once its snapshot is completed, run headwater sources sweep crm" in unswept
    world.operator(PEOPLE).resume()
    assert problems(world) == [unswept]
    world.operator(PEOPLE).sweep()
    assert problems(world) == []
    assert world.read == tables == ["public.people"]


@pytest.mark.parametrize("connector", [RUNNING, STOPPED])
def test_nothing_is_swept_before_all_earlier_changes_are_captured(
    world: World, monkeypatch: pytest.MonkeyPatch, connector: ConnectorState
) -> None:
    """They would bring rows back that were deleted without a change, after these were swept."""
    tables = swept(world, monkeypatch)
    monkeypatch.setattr(connector_states, "CAPTURED_S", 0.0)
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, table=101)}
    world.captured, world.connector = False, connector
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert (
        world.said[-1] == "rows of public.people that are gone are deleted by the next apply, once all else is captured"
    )
    assert world.read == ["public.people"]
    assert tables == []
    assert problems(world) == [GHOSTS]
    with pytest.raises(SourceProblem, match="earlier changes are still to be captured"):
        world.operator(PEOPLE).sweep()
    world.captured = True
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert tables == ["public.people"]
    assert problems(world) == []


def test_a_table_is_not_read_before_the_snapshot_that_was_asked_for_reports_its_end(world: World) -> None:
    operator = world.operator(PEOPLE)
    earlier = control_topics.new_signal(operator.names)
    world.of_task = {"table.include.list": ""}
    operator.snapshot([Person])
    (problem,) = problems(world)
    assert problem.startswith('rows of table "public.people" are being read again: wait until status shows')
    world.scanned("public.people", "")
    world.scanned("public.people", earlier)
    assert problems(world) == [problem]
    world.scanned("public.people", world.sent[-1][1]["id"])
    assert problems(world) == []
    world.reports.clear()
    assert problems(world) == [], "it is remembered although the reports have aged out"


def test_a_table_that_changes_while_it_is_read_again_is_read_once_more_afterwards(world: World) -> None:
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    world.of_task = {"table.include.list": ""}
    world.operator(PEOPLE).snapshot([Person])
    world.reports.append(b'{"aggregate_type": "Incremental Snapshot", "type": "STARTED"}')
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, table=101)}
    with pytest.raises(SourceProblem, match="changed while it was read, and its incremental snapshot still runs"):
        world.operator(PEOPLE).apply(dry_run=False)


def test_a_publication_that_is_altered_for_another_table_is_no_reason_to_read_again(world: World) -> None:
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    altered = msgspec.structs.replace(PEOPLE_STORED, published="5/2/6")
    world.prepare = lambda: world.found_layouts.update({"public.people": altered})  # type: ignore[method-assign]
    world.operator(BOTH).apply(dry_run=False)
    assert world.read == ["public.places"]
    assert problems(world) == []


GHOSTS = (
    'the topic of table "public.people" may have rows that were deleted while they were not captured: once its '
    "snapshot is completed, run headwater sources sweep crm"
)


def test_rows_that_an_interrupted_first_snapshot_may_have_left_behind_are_named_until_they_are_swept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = swept(world, monkeypatch)
    start = b'{"aggregate_type": "Initial Snapshot", "type": "STARTED"}'
    world.reports.append(start)
    assert GHOSTS not in problems(world)
    world.reports.append(start)  # it was interrupted, and begins anew
    assert GHOSTS in problems(world)
    with pytest.raises(SourceProblem, match="its initial snapshot still runs"):
        world.operator(PEOPLE).sweep()
    assert not world.operator(PEOPLE).apply(dry_run=False)
    world.reports.clear()
    assert GHOSTS in problems(world), "it is remembered although the reports have aged out"
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert world.said[0] == "- rows of public.people that are gone"
    assert tables == ["public.people"]
    world.reports += [start, start]
    assert GHOSTS not in problems(world)
    assert not world.operator(PEOPLE).apply(dry_run=False)


@pytest.mark.parametrize(("key", "named"), [('{"id":1}', True), ("heartbeat/1", False)])
def test_a_topic_that_has_rows_of_an_earlier_capture_is_to_be_swept(world: World, key: str, named: bool) -> None:
    world.configs, world.stored_offset = None, None
    world.log.submit(Entry(Person.topic(), key, b"{}", 0), 1).result()
    world.operator(PEOPLE).apply(dry_run=False)
    assert (GHOSTS in problems(world)) == named


def test_a_table_that_is_declared_once_more_is_swept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic has the rows that it had when it was declared no longer."""
    tables = swept(world, monkeypatch)
    world.log.submit(Entry(Place.topic(), '{"id":1}', b"{}", 0), 1).result()
    world.operator(BOTH).apply(dry_run=False)
    assert world.read == tables == ["public.places"]
