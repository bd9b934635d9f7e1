"""Rows that are to be read after `apply`."""

from __future__ import annotations

import pytest

from headwater.eventlog.capturing import control_topics, kafka_connect, operated, operating
from headwater.eventlog.capturing.errors import ConnectError, SourceProblem
from headwater.eventlog.capturing.kafka_connect import SIGNAL, ConnectorState
from headwater.eventlog.capturing.naming import source_topics
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.source_status import SourceStatus, look_at_connector, status_of
from tests.support.waiting import BOUND_S
from tests.unit.capturing.captured_world import (
    BOTH,
    PAUSED,
    PEOPLE,
    RUNNING,
    STOPPED,
    Killed,
    Person,
    Place,
    World,
    problems,
)


def test_a_table_that_is_declared_later_is_read_once(world: World) -> None:
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.told == [["public.places"]]
    assert not world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).resume()
    assert world.told == [["public.places"]]
    assert world.read == ["public.places"]
    assert problems(world) == []


def test_it_is_read_when_a_connector_that_was_paused_runs_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: a task that is paused reads signals too, and does not know the table."""
    world.connector = PAUSED
    monkeypatch.setattr(operated, "RUNNING_S", BOUND_S)  # which it does not wait for
    with pytest.raises(SourceProblem, match=r"is paused, and reads.*run headwater sources resume crm"):
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


def connector_problems(operator: Operator) -> list[str]:
    status = SourceStatus("crm")
    look_at_connector(operator, status)
    return status.problems


def test_status_says_that_a_connector_was_stopped_by_a_command(world: World) -> None:
    operator = left_stopped(world, RUNNING)
    (problem,) = connector_problems(operator)
    assert "if that command does not run any more, headwater sources watch does so" in problem
    operator.resume()
    world.connector = STOPPED
    (problem,) = connector_problems(operator)
    assert problem == "its connector is stopped: run headwater sources resume crm"


@pytest.mark.parametrize("connector", [RUNNING, STOPPED])
def test_what_a_connector_was_told_and_lost_is_named_and_read_by_the_next_command(
    world: World, connector: ConnectorState
) -> None:
    operator = world.operator(PEOPLE)
    operator.control.note("reading", {"public.people": operator.control.new_signal()})
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
    operator.control.note("unread", ["public.people", "public.places"])
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
    failed = ConnectorState("RUNNING", "FAILED", f"Cannot invoke: the return value of {kafka_connect.BROKEN}")
    for act in (operator.prepare_restart, operator.restart, operator.resume):
        world.connector = failed
        act()
        assert world.connector is RUNNING
        assert kafka_connect.all_queued(world.stored_offset) == []
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


def test_a_connector_that_is_not_assigned_to_a_worker_yet_is_waited_for(world: World) -> None:
    """As for a moment after Kafka Connect has distributed its connectors anew."""
    world.connector = ConnectorState("RUNNING", "UNASSIGNED")
    assert world.operator(PEOPLE).has_captured_all()


def test_a_connector_that_fails_is_not_waited_for_any_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def has_captured(*_: object) -> bool:
        looks.append(_)
        if len(looks) == 2:
            world.connector = ConnectorState("RUNNING", "FAILED")
        return False

    monkeypatch.setattr(world, "has_captured", has_captured)
    assert not world.operator(PEOPLE).has_captured_all(BOUND_S)
    assert len(looks) == 3


def test_a_table_that_is_being_read_is_read_from_its_beginning_if_it_is_to_be_read_again() -> None:
    offset = kafka_connect.with_tables({"lsn": 1}, ["a.b", "c.d"], "", "x-1")
    begun = {**offset, "incremental_snapshot_primary_key": "aced", "incremental_snapshot_maximum_key": "aced"}
    assert kafka_connect.with_tables(begun, ["c.d"], "", "x-2") == {**begun, SIGNAL: "x-2"}
    assert kafka_connect.with_tables(begun, ["a.b"], "", "x-2") == {**offset, SIGNAL: "x-2"}
    part = kafka_connect.with_tables(begun, ["a.b"], "id < 9", "x-2")
    assert "incremental_snapshot_primary_key" in part
    assert kafka_connect.queued(part) == ["a.b", "c.d"]
    assert kafka_connect.without_tables(part) == {"lsn": 1}
    with pytest.raises(ConnectError, match="of another form"):
        kafka_connect.queued({kafka_connect.TABLES: "{}"})


def test_another_snapshot_in_between_does_not_count(world: World) -> None:
    world.connector = PAUSED
    with pytest.raises(SourceProblem):
        world.operator(BOTH).apply(dry_run=False)
    world.operator(BOTH).snapshot([Person])
    world.operator(BOTH).snapshot([Place], "id < 9")
    world.connector = RUNNING
    assert world.operator(BOTH).apply(dry_run=False)
    assert world.told[2:] == [["public.places"]]
    assert world.read[-1] == "public.places"


def test_a_table_is_read_however_many_signals_were_sent_since_it_was_noted(world: World) -> None:
    operator = world.operator(BOTH)
    operator.control.note("unread", ["public.places"])
    for _ in range(control_topics.RECENT):
        operator.snapshot([Person])
    assert operator.apply(dry_run=False)
    assert world.told[-1] == ["public.places"]
    kept = {topic.name: topic.settings["retention.ms"] for topic in source_topics(BOTH, operator.settings.log)[2:]}
    assert kept["cdc.crm.signals"] == "-1", "a connector that is stopped for long has not read them"


def test_a_table_that_is_no_longer_declared_is_not_read(world: World) -> None:
    world.operator(BOTH).control.note("unread", ["public.places"])
    assert not world.operator(PEOPLE).apply(dry_run=False)
    assert world.told == []


def test_a_topic_of_signals_may_have_anything(world: World) -> None:
    operator = world.operator(BOTH)
    ours = ("unread", "first-snapshot", "failed", "read", "execute-snapshot", "server", "skipped-changes")
    for kind in ours:
        world.send("x", {"type": kind})
    for document in (
        {"type": "unread", "data": {"data-collections": 7}},
        {"type": "failed", "data": {"data-collections": ["a"]}},
        {"type": "log", "data": {"message": "hello"}},
        {"type": 1},
        {},
    ):
        world.send("x", document)
    assert operator.control.notes() == control_topics.Notes()


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
    world.operator(BOTH).control.note("unread", ["public.places"])
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


def test_a_declaration_that_was_not_applied_is_named_by_status_and_watch(world: World) -> None:
    world.operator(PEOPLE).apply(dry_run=False)
    assert world.operator(PEOPLE).find_uncaptured() is None
    named = "its connector is not as declared, because it lacks public.places.id: run headwater sources apply"
    assert named in status_of(world.operator(BOTH)).problems
    assert named in str(world.operator(BOTH).find_uncaptured())
