"""The watch over connectors, with a Kafka Connect, databases and a clock that do what each test says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import pytest

from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.errors import ConnectError, ConnectUnavailable, SourceProblem
from headwater.eventlog.capturing.kafka_connect import ConnectorState
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.capturing.sweeping import IncompleteRows
from headwater.eventlog.capturing.watching import ABSENT_S, EVERY_S, INCOMPLETE_S, LOST_S, RESTARTS, STEP_S, Watcher
from headwater.eventlog.errors import LogUnavailable

RUNNING = ConnectorState("RUNNING", "RUNNING")
PAUSED = ConnectorState("PAUSED", "PAUSED")
REFUSED = ConnectorState("RUNNING", "FAILED", "Couldn't get timestamp utils: Connection to 127.0.0.1:5432 refused")
AWAY = "cannot connect to db:5432 as reader (Connection refused): start the server, or correct HEADWATER_CRM_DATABASE"
REBALANCING = ConnectError("Kafka Connect at http://connect has been rebalancing for 2 s")
UNAVAILABLE = ConnectUnavailable("http://connect", "Connection refused")

Answer = TypeVar("Answer")


class World:
    """Kafka Connect and databases of sources.

    states: of connectors, by source; an error is raised. restarting: what restarts raise, or the state after them.
    databases: what each database lets a restart find. lost: what the sources skip. looked: when that was looked for.
    read: when tables were to be read that had not been; can_read: whether they could. looked_for_rows: when rows were
    looked for that lack values; unreadable: why some cannot be read again; is_behind: whether there is more to read.
    left: whether a command that has ended has left a connector stopped.
    restarted: when each source's connector was restarted, in
    seconds.
    """

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.states: dict[str, ConnectorState | Exception | None] = dict.fromkeys(names, REFUSED)
        self.restarting: dict[str, ConnectorState | Exception | None] = dict.fromkeys(names, RUNNING)
        self.databases: dict[str, Sequence[str] | Exception] = dict.fromkeys(names, ())
        self.restarted: dict[str, list[float]] = {name: [] for name in names}
        self.checked: dict[str, list[float]] = {name: [] for name in names}
        self.lost: dict[str, str | Exception | None] = dict.fromkeys(names)
        self.looked: list[float] = []
        self.read: list[float] = []
        self.can_read: bool | Exception = False
        self.looked_for_rows: list[float] = []
        self.unreadable: Sequence[str] | Exception = ()
        self.is_behind = False
        self.left: bool | Exception = False
        self.steps: bool | Exception = False
        self.watcher = Watcher([self._operator(name) for name in names], lambda: self.now)

    def state(self, connector: str) -> ConnectorState | None:
        return found(self.states[connector.rpartition(".")[2]])

    def restart_failed(self, connector: str) -> bool:
        name = connector.rpartition(".")[2]
        self.restarted[name].append(self.now)
        self.states[name] = found(self.restarting[name])
        return self.states[name] is not None

    def _operator(self, name: str) -> Operator:
        class Person(Captured, table="public.people", key="id"):
            id: int

        source = Source(name=name, tables=(Person,))
        variables = {
            source.database: "postgresql://reader@db/crm",
            "HEADWATER_ENVIRONMENT": "test",
            "HEADWATER_MODULES": "crm",
        }
        settings = SourceSettings.from_environment(source, variables)
        return Watched(source, settings, self)

    def pass_time(self, seconds: float) -> None:
        """Let the watcher look every EVERY_S."""
        end = self.now + seconds
        while self.now < end:
            self.watcher.look()
            self.now += EVERY_S


class Watched(Operator):
    """What the watch does about a source, as the world says."""

    def __init__(self, source: Source, settings: SourceSettings, world: World) -> None:
        super().__init__(source, settings, world, print)  # type: ignore[arg-type]
        self.world = world

    def prepare_restart(self) -> Sequence[str]:
        self.world.checked[self.source.name].append(self.world.now)
        return found(self.world.databases[self.source.name])

    def step_over_statements(self) -> bool:
        return found(self.world.steps)

    def find_uncaptured(self) -> str | None:
        self.world.looked.append(self.world.now)
        return found(self.world.lost[self.source.name])

    def read_late(self, timeout_s: float) -> bool:
        self.world.read.append(self.world.now)
        return found(self.world.can_read)

    def read_incomplete(self, rows: IncompleteRows, timeout_s: float) -> list[str]:
        self.world.looked_for_rows.append(self.world.now)
        rows.is_behind = self.world.is_behind
        return list(found(self.world.unreadable))

    def bring_back_if_left(self) -> bool:
        if found(self.world.left):
            self.world.states[self.source.name] = RUNNING
        return found(self.world.left)


def found(answer: Answer | Exception) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings so far; none has a stack trace."""
    assert not any(record.exc_info for record in caplog.records)
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_failed_is_restarted_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.pass_time(100)
    assert world.restarted["crm"] == [1]
    assert problems(caplog) == [f'source "crm": its connector failed ({REFUSED.error}): it is restarted until it runs']
    infos = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert infos == ['source "crm": restart 1 of its connector', 'source "crm": its connector runs']


def test_a_connector_whose_own_start_failed_is_restarted_too() -> None:
    world = World("crm")
    world.states["crm"] = ConnectorState("FAILED", "", "out of memory")
    world.pass_time(10)
    assert world.restarted["crm"] == [1]


def test_waits_double_up_to_a_minute_and_it_is_never_given_up(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.restarting["crm"] = REFUSED
    world.pass_time(3_600)
    times = world.restarted["crm"]
    waits = [after - before for before, after in pairwise(times)]
    assert waits[:6] == [3, 5, 9, 17, 33, 61], "2, 4, 8, … after the look that finds the failure"
    assert set(waits[6:]) == {61}
    assert times[-1] > 3_500
    assert len(problems(caplog)) == 1


def test_a_task_that_fails_again_and_again_after_a_moment_waits_longer_each_time() -> None:
    world = World("crm")
    for count in range(1, 8):
        world.states["crm"] = REFUSED
        while len(world.restarted["crm"]) < count:
            world.pass_time(1)
        world.pass_time(RESTARTS.stable_s / 2)
    times = world.restarted["crm"]
    waits = [after - before - RESTARTS.stable_s / 2 for before, after in pairwise(times)]
    assert waits == [3, 5, 9, 17, 33, 61]


def test_after_it_has_run_steadily_it_is_restarted_as_soon_as_at_first(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.restarting["crm"] = REFUSED
    world.pass_time(300)
    world.restarting["crm"] = RUNNING
    world.pass_time(62 + RESTARTS.stable_s)
    assert world.states["crm"] == RUNNING
    before, world.states["crm"] = world.now, REFUSED
    world.pass_time(10)
    assert world.restarted["crm"][-1] - before == 1
    assert len(problems(caplog)) == 2, "it is a new failure, so it is named again"


def test_a_database_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.databases["crm"] = SourceProblem("crm", AWAY)
    world.pass_time(600)
    assert world.restarted["crm"] == []
    assert problems(caplog)[1:] == [f'source "crm": {AWAY}']
    assert 50 < len(world.checked["crm"]) < 100, "it is checked every 10 s, not every second"
    back, world.databases["crm"] = world.now, ()
    world.pass_time(12)
    assert [back <= when <= back + 10 for when in world.restarted["crm"]] == [True]
    assert world.states["crm"] == RUNNING


def test_a_log_that_is_away_is_waited_for_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka Connect goes on answering, and the check of the database reads notes in the log."""
    world, error = World("crm"), LogUnavailable('reading "signals"', "nothing came in time")
    world.databases["crm"] = error
    world.pass_time(30)
    assert world.restarted["crm"] == []
    assert problems(caplog)[1:] == [f'source "crm": {error}']
    world.databases["crm"] = ()
    world.pass_time(12)
    assert world.states["crm"] == RUNNING


def test_each_distinct_problem_of_the_database_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    starting = AWAY.replace("Connection refused", "the database system is starting up")
    for answer in (AWAY, starting, AWAY, "its password is wrong", starting):
        world.databases["crm"] = SourceProblem("crm", answer)
        world.pass_time(30)
    assert problems(caplog)[1:] == [f'source "crm": {text}' for text in (AWAY, starting, "its password is wrong")]


def test_problems_that_a_restart_may_outlive_are_named_but_do_not_prevent_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    named = ("role reader may not replicate", 'there is no table "public.people"')
    world.databases["crm"] = named
    world.restarting["crm"] = REFUSED
    world.pass_time(60)
    assert len(world.restarted["crm"]) > 3
    assert problems(caplog)[1:] == [f'source "crm": {text}' for text in named]


def test_a_source_that_lost_changes_is_named_and_never_restarted(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"] = ConnectorState("RUNNING", "FAILED", "the offset is no longer available on the server")
    world.pass_time(600)
    assert world.restarted["crm"] == world.checked["crm"] == []
    (problem,) = problems(caplog)
    assert problem.startswith('source "crm": replication slot test_cdc_crm is lost')
    assert "then apply, which reads all tables again, then sweep" in problem


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_what_was_paused_or_stopped_is_left_alone(state: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"] = ConnectorState(state, "FAILED", "refused before it was paused")
    world.pass_time(600)
    assert world.restarted["crm"] == []
    assert problems(caplog) == []


def test_what_starts_or_moves_to_another_worker_is_left_alone() -> None:
    world = World("crm")
    for state in (ConnectorState("UNASSIGNED", "UNASSIGNED"), ConnectorState("RUNNING", "RESTARTING")):
        world.states["crm"] = state
        world.pass_time(600)
    world.states["crm"] = ConnectorState("RUNNING", "")
    world.pass_time(600)
    assert world.restarted["crm"] == []


def test_a_connector_that_is_not_registered_is_named_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"] = None
    world.pass_time(60)
    assert problems(caplog) == ['source "crm": it has no connector: run headwater sources apply']
    world.states["crm"] = REFUSED
    world.pass_time(60)
    assert world.states["crm"] == RUNNING


def test_rows_that_lack_values_are_looked_for_while_the_connector_runs(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"] = RUNNING
    world.pass_time(INCOMPLETE_S + 1)
    assert world.looked_for_rows == [0, INCOMPLETE_S]
    why = 'the rows of table "public.people" cannot be read again'
    for unreadable in ([why], LogUnavailable("looking for incomplete rows", "nothing came in time"), [why], []):
        world.unreadable = unreadable
        world.pass_time(2 * INCOMPLETE_S)
    assert [why in problem for problem in problems(caplog)] == [True, False, True]
    count, world.is_behind = len(world.looked_for_rows), True
    world.pass_time(2 * INCOMPLETE_S)
    assert len(world.looked_for_rows) > count + INCOMPLETE_S - 2, "it reads on at each look"
    count, world.states["crm"] = len(world.looked_for_rows), PAUSED
    world.pass_time(2 * INCOMPLETE_S)
    assert len(world.looked_for_rows) == count


def test_a_worker_that_starts_may_not_know_its_connectors_yet(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    for _ in range(3):
        world.states["crm"] = None
        world.pass_time(ABSENT_S - 2)
        world.states["crm"] = UNAVAILABLE
        world.pass_time(5)
    assert problems(caplog) == [str(UNAVAILABLE)] * 3
    world.states["crm"] = RUNNING
    world.pass_time(5)
    world.states["crm"] = None
    world.pass_time(ABSENT_S - 2)
    assert len(problems(caplog)) == 3


def test_a_connector_that_vanishes_between_look_and_restart(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.restarting["crm"] = None
    world.pass_time(60)
    assert world.restarted["crm"] == [1]
    assert problems(caplog)[1:] == ['source "crm": it has no connector: run headwater sources apply']


def test_a_restart_that_connect_refuses_while_it_rebalances_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.restarting["crm"] = REBALANCING
    world.pass_time(60)
    assert len(world.restarted["crm"]) > 5
    assert problems(caplog)[1:] == [f'source "crm": {REBALANCING}']
    before, world.restarting["crm"] = world.now, RUNNING
    world.pass_time(12)
    assert world.states["crm"] == RUNNING
    world.states["crm"] = REFUSED
    world.pass_time(5)
    assert world.restarted["crm"][-1] - before < 20, "requests that Connect refused are no restarts"


def test_connect_that_is_away_is_named_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm", "erp")
    world.states = dict.fromkeys(world.states, UNAVAILABLE)
    world.pass_time(600)
    assert problems(caplog) == [str(UNAVAILABLE)]
    world.states = dict.fromkeys(world.states, REFUSED)
    world.pass_time(10)
    assert set(world.states.values()) == {RUNNING}
    world.states = dict.fromkeys(world.states, UNAVAILABLE)
    world.pass_time(10)
    assert problems(caplog).count(str(UNAVAILABLE)) == 2, "it was away twice"


def test_time_without_connect_is_not_time_that_a_connector_ran() -> None:
    world = World("crm")
    for _ in range(4):
        world.states["crm"] = REFUSED
        world.pass_time(20)
        world.states["crm"] = UNAVAILABLE
        world.pass_time(RESTARTS.stable_s)
        world.states["crm"] = RUNNING
        world.pass_time(2)
    began, world.states["crm"] = world.now, REFUSED
    world.pass_time(60)
    assert world.restarted["crm"][-1] - began == 16, "the fifth wait"


def test_connect_that_answers_all_but_restarts_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm", "erp")
    world.restarting["crm"] = UNAVAILABLE
    world.pass_time(600)
    assert world.states["erp"] == RUNNING
    assert [text for text in problems(caplog) if "does not answer" in text] == [f'source "crm": {UNAVAILABLE}']
    world.restarting["crm"] = RUNNING
    world.pass_time(12)
    assert world.states["crm"] == RUNNING


@pytest.mark.parametrize(
    "broken",
    [
        ConnectError("Kafka Connect refused GET /connectors/test.cdc.crm/status: Request timed out"),
        None,
        ConnectorState("RUNNING", "FAILED", "the offset is no longer available on the server"),
        REFUSED,
    ],
)
def test_a_broken_source_does_not_hold_up_another(
    broken: ConnectorState | Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("crm", "erp")
    world.states["crm"], world.databases["crm"] = broken, SourceProblem("crm", AWAY)
    world.pass_time(100)
    assert world.restarted == {"crm": [], "erp": [1]}
    assert world.states["erp"] == RUNNING
    assert len([text for text in problems(caplog) if "crm" in text]) == (2 if broken is REFUSED else 1)


def test_it_looks_until_it_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm", "erp")
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        world.now += seconds
        return len(waited) == 5

    world.watcher.run(wait)
    assert waited == [EVERY_S] * 5
    assert world.restarted == {"crm": [1], "erp": [1]}
    assert caplog.messages[0] == "watching crm, erp"


def test_what_a_connector_that_runs_skips_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"] = RUNNING
    world.pass_time(100)
    assert len(world.looked) == 10
    world.lost["crm"] = "changes are missing"
    world.pass_time(300)
    assert problems(caplog) == ['source "crm": changes are missing']
    assert world.restarted["crm"] == []


@pytest.mark.parametrize("error", [SourceProblem("crm", AWAY), LogUnavailable("reading", "no answer")])
def test_what_prevents_that_look_is_named_once_and_ends_nothing(
    error: SourceProblem | LogUnavailable, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("crm")
    world.states["crm"], world.lost["crm"] = RUNNING, error
    world.pass_time(300)
    assert len(problems(caplog)) == 1
    world.states["crm"] = REFUSED
    world.pass_time(5)
    assert len(world.restarted["crm"]) == 1


def test_tables_that_were_not_read_are_read_once_two_looks_have_named_them(caplog: pytest.LogCaptureFixture) -> None:
    """A command that has noted them may be about to let them be read."""
    world = World("crm")
    world.states["crm"] = RUNNING
    world.pass_time(2 * LOST_S)
    assert world.read == []
    world.lost["crm"] = 'rows of table "public.people" were not read'
    world.pass_time(3 * LOST_S)
    assert world.read == [3 * LOST_S, 4 * LOST_S], "as long as they are named"
    assert "its connector reads tables again" not in caplog.text
    world.can_read = True
    world.pass_time(1)
    world.lost["crm"] = None
    world.pass_time(3 * LOST_S)
    assert len(world.read) == 3
    assert caplog.text.count("its connector reads tables again") == 1


def test_a_connector_that_would_skip_changes_is_led_past_them(caplog: pytest.LogCaptureFixture) -> None:
    world = World("crm")
    world.states["crm"], world.steps = RUNNING, True
    world.pass_time(STEP_S - 1)
    assert caplog.text.count("its connector goes on behind the last statement") == 1, "not for each statement"
    world.pass_time(LOST_S)
    assert caplog.text.count("its connector goes on behind the last statement") == 2
    world.steps = False
    world.pass_time(2 * STEP_S)
    assert caplog.text.count("its connector goes on behind the last statement") == 2


def test_a_connector_that_was_left_stopped_goes_on_once_that_can_be_known(caplog: pytest.LogCaptureFixture) -> None:
    """By a command that was killed, or by the watch itself, if a server went away while it let tables be read."""
    world = World("crm")
    world.states["crm"], world.lost["crm"] = RUNNING, 'rows of table "public.people" were not read'
    world.can_read = UNAVAILABLE
    world.pass_time(LOST_S + 1)
    assert world.read == [LOST_S]
    world.states["crm"], world.left = ConnectorState("STOPPED", ""), SourceProblem("crm", AWAY)
    world.pass_time(5 * LOST_S)
    assert problems(caplog).count(f'source "crm": {AWAY}') == 1
    world.left = True
    world.pass_time(LOST_S)
    assert world.states["crm"] is RUNNING
    assert "its connector was left stopped, and goes on" in caplog.text
    world.left = False
    world.states["crm"] = ConnectorState("STOPPED", "")
    world.pass_time(2 * LOST_S)
    assert world.states["crm"] == ConnectorState("STOPPED", ""), "somebody else has stopped it, or a command that runs"
