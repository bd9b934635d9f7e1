"""Rows that are to be read after `apply`, with a Kafka Connect, a database and a topic of signals in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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
    holding,
    operating,
    planning,
    rereading,
    snapshot_queue,
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
from eventlog.capturing.snapshot_queue import SIGNAL, TABLES, all_queued, without_tables
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
    is_held: another command works with the connector.
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

    def send(self, _log: object, _names: object, key: str, document: Mapping[str, Any]) -> None:
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
        if new := [each[f"{TABLES}_id"] for each in entries if each not in before]:
            self.told.append(new)

    def resume(self, connector: str) -> None:
        if self.dies_after_register:
            raise Killed
        if self.connector is STOPPED:
            self.of_task = self.configs or {}
        self.connector = RUNNING
        self.execute()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(PostgresEngine, "open", lambda *_: made.open())
    monkeypatch.setattr(control_topics, "_send", made.send)
    monkeypatch.setattr(control_topics, "_recent", made.recent)
    for name in ("missing_topics", "prepare_topics"):
        module = operating if hasattr(operating, name) else planning
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(unread_tables, "KafkaLog", lambda _: made.log)
    monkeypatch.setattr(connector_states, "RUNNING_S", 0.0)
    monkeypatch.setattr(holding, "HOLD_S", 0.0)
    made.capture(PEOPLE)
    return made


def problems(world: World) -> list[str]:
    status = SourceStatus("crm")
    source_status._look_at_rows(world.operator(BOTH), status)
    return status.problems


def test_a_table_that_is_declared_later_is_read_once(world: World) -> None:
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.told == [["public.places"]]
    assert not world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).resume()
    assert world.told == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []


def test_it_is_read_when_a_connector_that_was_paused_runs_again(world: World) -> None:
    """Not before: a task that is paused reads signals too, and does not know the table."""
    world.connector = PAUSED
    with pytest.raises(ConnectError, match="not RUNNING"):
        world.operator(BOTH).apply(dry_run=False)
    assert world.told == []
    assert problems(world) == [
        'rows of table "public.places" were not read after it was declared: run headwater sources apply'
    ]
    world.operator(BOTH).resume()
    assert world.told == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []
    assert not world.operator(BOTH).apply(dry_run=False)


def test_it_is_read_once_the_connector_runs_if_apply_was_killed_while_it_had_stopped_it(world: World) -> None:
    world.dies_after_register = True
    with pytest.raises(Killed):
        world.operator(BOTH).apply(dry_run=False)
    world.dies_after_register = False
    assert world.connector is STOPPED
    (problem,) = problems(world)
    assert problem.startswith('rows of table "public.places" are being read again')
    assert world.operator(BOTH).apply(dry_run=True)
    assert world.connector is STOPPED
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.said[-1] == operating.LEFT
    assert world.told == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []
    assert not world.operator(BOTH).apply(dry_run=False)


def left_stopped(world: World, before: ConnectorState) -> Operator:
    """A connector that was in this state, and that a command has stopped which was killed then."""
    operator, world.connector = world.operator(PEOPLE), before
    operator.stop()
    assert world.connector is STOPPED
    return operator


@pytest.mark.parametrize("before", [RUNNING, PAUSED])
def test_the_watch_brings_back_what_a_killed_command_has_left_stopped(world: World, before: ConnectorState) -> None:
    operator = left_stopped(world, before)
    world.is_held = True
    assert not operator.bring_back_if_left(), "the command still runs"
    world.is_held = False
    assert operator.bring_back_if_left()
    assert world.connector is before
    world.connector = STOPPED
    assert not operator.bring_back_if_left(), "somebody else has stopped it"


def test_a_command_changes_nothing_while_another_one_works_with_the_connector(world: World) -> None:
    operator = left_stopped(world, RUNNING)
    world.is_held = True
    busy = "another command works with its connector"
    for act in (operator.resume, operator.restart, lambda: operator.snapshot([Person]), operator.prepare_restart):
        with pytest.raises(SourceProblem, match=busy):
            act()
    assert not operator.apply(dry_run=False), "all is as declared"
    assert not operator.apply(dry_run=True), "it is not left stopped"
    with pytest.raises(SourceProblem, match=busy):
        world.operator(BOTH).apply(dry_run=False)
    assert world.connector is STOPPED
    assert world.told == []
    assert len(world.configs or {}) > 0
    assert "places" not in str(world.configs)


def test_status_says_that_a_connector_was_stopped_by_a_command(world: World) -> None:
    operator = left_stopped(world, RUNNING)
    (problem,) = source_status._connector_problems(operator, STOPPED)
    assert "if that command does not run any more, headwater sources watch does so" in problem
    operator.resume()
    (problem,) = source_status._connector_problems(operator, STOPPED)
    assert problem == "its connector is stopped: run headwater sources resume crm"


@pytest.mark.parametrize("connector", [RUNNING, STOPPED])
def test_what_an_earlier_release_signalled_and_lost_is_named_and_read_by_the_next_command(
    world: World, connector: ConnectorState
) -> None:
    operator = world.operator(PEOPLE)
    reading = {"data-collections": {"public.people": control_topics.new_signal(operator.names)}}
    control_topics.note(operator.settings.log, operator.names, control_notes.READING, reading)
    named = ['rows of table "public.people" were not read again as its connector was told: run headwater sources apply']
    assert problems(world) == named
    world.connector, world.captured = connector, connector is RUNNING
    assert operator.apply(dry_run=True)
    if connector is STOPPED:
        world.captured = True
    assert operator.apply(dry_run=False)
    assert world.read == ["public.people"]
    assert problems(world) == []


def test_the_watch_lets_a_connector_read_what_was_late_once_it_has_captured_all(world: World) -> None:
    operator = world.operator(BOTH)
    control_topics.note_unread(operator.settings.log, operator.names, ["public.people", "public.places"])
    world.captured = False
    assert not operator.read_late(0.0)
    assert world.connector is RUNNING
    world.captured, world.uncompared = True, {"public.people": "its key column is a timestamp"}
    assert not operator.read_late(0.0), "places is not in the configuration, and people cannot be read"
    world.uncompared = {}
    assert operator.read_late(0.0)
    assert world.read == ["public.people"]
    (problem,) = problems(world)
    assert "public.places" in problem


def test_a_table_whose_rows_the_database_refuses_is_left_out_and_named(world: World) -> None:
    """Debezium fails at it again after each restart."""
    operator = world.operator(PEOPLE)
    world.scanned("public.people", "")
    world.of_task = {"table.include.list": ""}
    world.connector = STOPPED
    operator.snapshot([Person])
    failed = ConnectorState("RUNNING", "FAILED", f"Cannot invoke: the return value of {snapshot_queue.BROKEN}")
    for act in (operator.prepare_restart, operator.restart, operator.resume):
        world.connector = failed
        act()
        assert world.connector is RUNNING
        assert snapshot_queue.all_queued(world.stored_offset) == []
        (problem,) = problems(world)
        assert "its last snapshot failed (SQL_EXCEPTION)" in problem
    world.of_task = world.configs or {}
    operator.snapshot([Person])
    assert problems(world) == []


def test_a_condition_that_the_database_refuses_is_named_before_anything_is_done(world: World) -> None:
    world.refused = 'PostgreSQL refuses: column "nick" does not exist'
    with pytest.raises(SourceProblem, match="nick"):
        world.operator(PEOPLE).snapshot([Person], "nick = 1")
    assert world.told == []
    assert world.sent == []


def test_nothing_is_read_again_during_the_first_snapshot(world: World) -> None:
    """It begins anew if the connector is stopped."""
    world.stored_offset = {"lsn": 1, "snapshot": "INITIAL"}
    with pytest.raises(SourceProblem, match="its first snapshot still runs: wait until it is completed"):
        world.operator(PEOPLE).snapshot([Person])
    assert world.connector is RUNNING


def test_a_table_that_is_being_read_is_read_from_its_beginning_if_it_is_to_be_read_again() -> None:
    offset = snapshot_queue.with_tables({"lsn": 1}, ["a.b", "c.d"], "", "x-1")
    begun = {**offset, "incremental_snapshot_primary_key": "aced", "incremental_snapshot_maximum_key": "aced"}
    assert snapshot_queue.with_tables(begun, ["c.d"], "", "x-2") == {**begun, SIGNAL: "x-2"}
    assert snapshot_queue.with_tables(begun, ["a.b"], "", "x-2") == {**offset, SIGNAL: "x-2"}
    part = snapshot_queue.with_tables(begun, ["a.b"], "id < 9", "x-2")
    assert "incremental_snapshot_primary_key" in part
    assert snapshot_queue.queued(part) == ["a.b", "c.d"]
    assert snapshot_queue.without_tables(part) == {"lsn": 1}
    with pytest.raises(ConnectError, match="of another form"):
        snapshot_queue.queued({snapshot_queue.TABLES: "{}"})


def test_another_snapshot_in_between_does_not_count(world: World) -> None:
    world.connector = PAUSED
    with pytest.raises(ConnectError):
        world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).snapshot([Person])
    world.operator(BOTH).snapshot([Place], "id < 9")
    world.connector = RUNNING
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.told[2:] == [["public.places"]]
    assert world.read[-1] == "public.places"


def test_a_table_is_read_however_many_signals_were_sent_since_it_was_noted(world: World) -> None:
    operator = world.operator(BOTH)
    control_topics.note_unread(operator.settings.log, operator.names, ["public.places"])
    for _ in range(control_topics.RECENT):
        operator.snapshot([Person])
    assert operator.apply(dry_run=False)
    assert world.told[-1] == ["public.places"]
    kept = {each.name: each.settings["retention.ms"] for each in source_topics(BOTH, operator.settings.log)[2:]}
    assert kept["cdc.crm.signals"] == "-1", "a connector that is stopped for long has not read them"


def test_a_table_that_is_no_longer_declared_is_not_read(world: World) -> None:
    control_topics.note_unread(world.operator(BOTH).settings.log, SourceNames("", ""), ["public.places"])
    assert not world.operator(PEOPLE).apply(dry_run=False)
    assert world.told == []


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
    assert world.told == [["public.people"]]


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

    def sweep(_log: object, table: type[Captured], _database: object, check: Callable[[], None]) -> Swept:
        check()
        assert world.connector is STOPPED
        tables.append(table.table)
        return Swept(1, 0)

    monkeypatch.setattr(rereading, "sweep", sweep)
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


def test_what_was_found_is_mended_although_a_later_change_hides_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition is attached with rows, seen, and detached: rows that were added meanwhile are in the topic."""
    tables = swept(world, monkeypatch)
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    more = {**PEOPLE_STORED.parts, "101": Part("public.people_1", 8, "5", "100")}
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, parts=more)}
    attached = f'table "public.people" has got the rows of public.people_1, which was attached{ADVICE}'
    assert problems(world) == [attached]
    world.found_layouts = {"public.people": PEOPLE_STORED}
    named = problems(world)
    assert named[0] == attached
    assert len(named) == 2
    assert "public.people_1" in named[1]
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
def test_nothing_is_read_again_or_swept_before_all_earlier_changes_are_captured(
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
        world.said[-1]
        == "rows of public.people that are gone are deleted by the next apply, once all earlier changes are captured"
    )
    assert world.read == tables == [], "an earlier change of a row may come behind the row that is read now"
    assert problems(world) == [
        'rows of table "public.people" were not read after it was declared: run headwater sources apply',
        GHOSTS,
    ]
    with pytest.raises(SourceProblem, match="earlier changes are still to be captured"):
        world.operator(PEOPLE).sweep()
    world.captured = True
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert world.read == tables == ["public.people"]
    assert problems(world) == []


def test_a_table_is_not_read_before_the_snapshot_that_was_asked_for_reports_its_end(world: World) -> None:
    operator = world.operator(PEOPLE)
    earlier = control_topics.new_signal(operator.names)
    world.is_slow = True
    operator.snapshot([Person])
    (problem,) = problems(world)
    assert problem.startswith('rows of table "public.people" are being read again: wait until status shows')
    world.scanned("public.people", "")
    world.scanned("public.people", earlier)
    assert problems(world) == [problem]
    world.scanned("public.people", (world.stored_offset or {})[SIGNAL])
    assert problems(world) == []
    world.reports.clear()
    assert problems(world) == [], "it is remembered although the reports have aged out"


def test_a_table_that_changes_while_it_is_read_again_is_read_once_more_afterwards(world: World) -> None:
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == []
    world.is_slow = True
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


BEHIND = {"lsn": 5}


def test_a_connector_that_is_started_goes_on_behind_statements_that_it_has_read(world: World) -> None:
    operator = world.operator(PEOPLE)
    operator.apply(dry_run=False)
    for act in (operator.restart, operator.prepare_restart, lambda: operator.snapshot([Person])):
        world.stored_offset, world.past = {"lsn": 1, "event": 7}, BEHIND
        act()
        assert world.stored_offset.items() >= BEHIND.items()
        assert "event" not in world.stored_offset
        assert world.connector is RUNNING


def test_the_watch_restarts_a_connector_only_if_it_would_skip_changes_later(world: World) -> None:
    operator = world.operator(PEOPLE)
    operator.apply(dry_run=False)
    for offset, past in (({"lsn": 1}, BEHIND), ({"lsn": 1, "event": 3}, None)):
        world.stored_offset, world.past = offset, past
        assert not operator.step_over_statements()
    world.past, world.is_held = BEHIND, True
    assert not operator.step_over_statements(), "a command works with it"
    assert world.stored_offset == {"lsn": 1, "event": 3}
    world.is_held = False
    assert operator.step_over_statements()
    assert (world.stored_offset, world.connector) == (BEHIND, RUNNING)
