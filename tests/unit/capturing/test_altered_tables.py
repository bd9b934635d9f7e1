"""Captured tables that are stored otherwise than they were, and rows that a first snapshot has left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from headwater.eventlog.capturing import Captured, operated, rereading
from headwater.eventlog.capturing.database import GONE, Layout, Part
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import SIGNAL, TABLES, ConnectorState, all_queued, queued, with_tables
from headwater.eventlog.capturing.sweeping import Swept
from headwater.eventlog.ports import Entry
from tests.unit.capturing.captured_world import (
    BOTH,
    PAUSED,
    PEOPLE,
    RUNNING,
    STOPPED,
    Person,
    Place,
    World,
    problems,
)

PEOPLE_STORED = Layout(18, 100, {"100": Part("public.people", 7)}, {"id": (1, 23)}, {}, "5/1/6")
ADVICE = (
    ", of which the log of the database has no changes: run headwater sources apply, which reads its rows "
    "again, and deletes those that are gone"
)


def swept(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are swept from now on, each with a connector that is stopped."""
    tables: list[str] = []

    def sweep(_log: object, table: type[Captured], _database: object, check: Callable[[], None], _: int) -> Swept:
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
    with pytest.raises(SourceProblem, match="its connector is paused"):
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
    monkeypatch.setattr(operated, "CAPTURED_S", 0.0)
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
    earlier = operator.control.new_signal()
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


def test_what_was_lost_for_a_time_is_known_until_the_table_was_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = swept(world, monkeypatch)
    world.found_layouts = {"public.people": PEOPLE_STORED}
    world.operator(PEOPLE).apply(dry_run=False)
    losing = "may have changed while binlog_format was MIXED"
    world.found_layouts = {"public.people": msgspec.structs.replace(PEOPLE_STORED, losing=losing)}
    for _ in range(3):
        assert problems(world) == [f'table "public.people" {losing}{ADVICE}']
    assert len([None for _, document in world.sent if document["type"] == "missed"]) == 1, "once is enough"
    world.found_layouts = {"public.people": PEOPLE_STORED}
    assert problems(world) == [f'table "public.people" {losing}{ADVICE}'], "it has ended, and rows are wrong"
    assert world.operator(PEOPLE).apply(dry_run=False)
    assert (world.read, tables) == (["public.people"], ["public.people"])
    assert problems(world) == []


def with_only(offset: Mapping[str, Any] | None, table: str) -> dict[str, Any]:
    """An offset of which this table alone is still to be read."""
    found = dict(offset or {})
    entries = [each for each in json.loads(found[TABLES]) if each[f"{TABLES}_id"] == table]
    return {**found, TABLES: json.dumps(entries)}


def test_a_part_of_another_table_does_not_make_a_table_unread_or_read(world: World) -> None:
    world.capture(BOTH)
    world.is_slow = True
    world.operator(BOTH).snapshot([Person])
    whole = (world.stored_offset or {})[SIGNAL]
    world.operator(BOTH).snapshot([Place], "id < 9")
    part = (world.stored_offset or {})[SIGNAL]
    assert part.endswith("-part") and part != whole
    (problem,) = problems(world)
    # the connector reports the id of the last signal with the end of each table
    world.scanned("public.people", part)
    world.stored_offset = with_only(world.stored_offset, "public.places")
    assert problems(world) == [], "it is not read from its beginning again"
    world.reports.clear()
    world.operator(BOTH).snapshot([Person])
    world.failed("public.people", (world.stored_offset or {})[SIGNAL])
    world.stored_offset = with_only(world.stored_offset, "public.places")
    (problem,) = problems(world)
    assert "its last snapshot failed (SQL_EXCEPTION)" in problem
    world.operator(BOTH).snapshot([Person], "id < 9")
    world.scanned("public.people", (world.stored_offset or {})[SIGNAL])
    assert problems(world) == [problem], "some of its rows were read"


def test_a_table_to_be_read_as_a_whole_is_not_read_in_parts_before() -> None:
    some = with_tables({"lsn": 1}, ["a.b", "c.d"], "id < 9", "x-1-part")
    begun = {**some, "incremental_snapshot_primary_key": "aced"}
    whole = with_tables(begun, ["a.b"], "", "x-2")
    assert (queued(whole), all_queued(whole)) == (["a.b"], ["c.d", "a.b"])
    assert "incremental_snapshot_primary_key" not in whole
    assert all_queued(with_tables(whole, ["a.b"], "id < 5", "x-3-part")) == ["c.d", "a.b"]


def test_a_watch_with_an_earlier_declaration_notes_nothing_of_columns_that_it_does_not_know(world: World) -> None:
    stored = Layout(18, 100, {"100": Part("public.people", 7)}, {"id": (1, 23), "name": (2, 25)}, {}, "5/1/6")
    earlier = msgspec.structs.replace(stored, columns={"id": (1, 23)})
    assert earlier.noted(stored, {"id"}).columns == stored.columns
    assert earlier.noted(stored, {"id", "name"}).columns["name"] == GONE
