"""A database that is another one than was captured, or has lost what was captured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from headwater.eventlog.capturing.database import Layout, Server
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.mysql.engine import MySqlDatabase
from headwater.eventlog.capturing.source_status import SourceStatus, look_at_database, status_of
from tests.unit.capturing.captured_world import PEOPLE, World


def lost(world: World) -> list[str]:
    """What `status` says of the database, and `watch` of a connector that runs."""
    status = SourceStatus("crm", state="RUNNING")
    look_at_database(world.operator(PEOPLE), status)
    assert status.problems == ([found] if (found := world.operator(PEOPLE).find_uncaptured()) else [])
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
    noted = [document for _, document in world.sent if document["type"] == "skipped-changes"]
    assert len(noted) == 1, "once is enough"


def test_another_server_is_named_and_one_that_pg_upgrade_made_is_not(world: World) -> None:
    assert lost(world) == [], "nothing is noted yet"
    world.operator(PEOPLE).apply(dry_run=True)
    assert world.sent == []
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = None
    assert lost(world) == [], "the role may not ask any more"
    world.found_server = Server("7002", 18)
    assert lost(world) == []
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = Server("7003", 18)
    with pytest.raises(SourceProblem, match="HEADWATER_CRM_DATABASE is the address of another database") as another:
        lost(world)
    assert "this server has the system identifier 7003, and that which was captured had 7002" in str(another.value)


class MySqlServer(MySqlDatabase):
    """A server with this `server_uuid` and `gtid_executed`."""

    def __init__(self, uuid: str, gtids: str) -> None:
        self.asked = {"identifier": uuid, "gtids": gtids}

    def rows(self, query: str, values: object = None) -> list[dict[str, Any]]:
        return [self.asked]


def test_a_server_of_mysql_is_another_one_unless_it_has_transactions_of_the_captured_one() -> None:
    captured = MySqlServer("aaaa", "aaaa:1-16,\nbbbb:1-3").identity()
    assert msgspec.convert(msgspec.to_builtins(captured), Server) == captured, "it is noted as JSON"
    promoted = MySqlServer("cccc", "aaaa:1-16,\nbbbb:1-3,\ncccc:1").identity()
    read_only = MySqlServer("dddd", "bbbb:1-3").identity()
    for same in (captured, promoted, read_only):
        assert same.differs(captured) is None
    for other in (MySqlServer("eeee", "eeee:1-900"), MySqlServer("eeee", "")):
        assert "has the system identifier eeee, and that which was captured had aaaa" in str(
            other.identity().differs(captured)
        )


def test_nothing_is_swept_in_another_server_of_mysql(world: World) -> None:
    world.found_server = MySqlServer("aaaa", "aaaa:1-16").identity()
    world.operator(PEOPLE).apply(dry_run=False)
    world.found_server = MySqlServer("eeee", "eeee:1-900").identity()
    with pytest.raises(SourceProblem, match="another database"):
        world.operator(PEOPLE).sweep()
    world.found_server = MySqlServer("cccc", "aaaa:1-16,cccc:1").identity()
    world.operator(PEOPLE).apply(dry_run=False)
    assert lost(world) == []


def test_a_wrong_address_condemns_no_source_and_nothing_is_done_there(world: World) -> None:
    world.found_server = right = Server("7001", 17, database="crm")
    world.operator(PEOPLE).apply(dry_run=False)
    noted = len(world.sent)
    for wrong in (Server("7009", 17), Server("7001", 17, database="other")):
        world.found_server, world.skipped = wrong, "its log ends at 0/1"
        world.found_layouts = {"public.people": Layout(17, 99)}
        (problem,) = [
            problem for problem in status_of(world.operator(PEOPLE)).problems if "another database" in problem
        ]
        assert "correct it. If the captured one is gone for good" in problem
        operator = world.operator(PEOPLE)
        acts: list[Callable[[], object]] = [operator.sweep, operator.resume, operator.find_uncaptured]
        acts += [partial(operator.remove, topics=True), partial(operator.apply, dry_run=False)]
        for act in acts:
            with pytest.raises(SourceProblem, match="another database"):
                act()
        assert operator.rows_not_as_declared() == []
    assert world.configs is not None, "the connector is still there"
    assert len(world.sent) == noted
    world.found_server, world.skipped, world.found_layouts = right, None, {}
    assert lost(world) == []


def test_a_look_notes_nothing_of_the_database(world: World) -> None:
    world.operator(PEOPLE).apply(dry_run=False)
    noted = len(world.sent)
    world.skipped = "its log ends at 0/1"
    assert any("its log ends at 0/1" in problem for problem in status_of(world.operator(PEOPLE)).problems)
    assert len(world.sent) == noted


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
    assert lost(world) == [], "the server did not say its timeline"
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
    look_at_database(world.operator(PEOPLE), status)
    assert status.warnings == ["a standby that reads replication slot s may lack changes"]
    assert status.is_healthy
    world.operator(PEOPLE).apply(dry_run=True)
    assert "warning: a standby that reads replication slot s may lack changes" in world.said
