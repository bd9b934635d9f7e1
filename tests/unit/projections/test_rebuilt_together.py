"""Views that are rebuilt together, in memory: what fails for one of them is named, and stops no other."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import BulkLoadFailed, NotPublished, RebuildFailed, StreamQueryFailed
from headwater.projections.generations.rebuild import rebuilder
from headwater.projections.generations.rebuild.engine import BulkResult
from headwater.projections.generations.rebuild.rebuild import Options, Rebuild, Rebuilt, Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.state_files import StatePlace
from headwater.projections.limits import MAX_TOGETHER, QUERIES_TOGETHER
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.store import Target
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from headwater.samples.shop.views import customer_360
from tests.support.observed import gate_view
from tests.unit.projections.rebuild_stage import (
    AWAY,
    SETTINGS,
    Failing,
    Registry,
    Staged,
    Store,
    observed,
    views,
)

FAILING: Failing = {
    "at_create": ("create", AWAY),
    "at_bulk": ("bulk_writer", AWAY),
    "at_load": ("load", BulkLoadFailed("at_load", "no space")),
    "at_index": ("finish", AWAY),
    "at_publish": ("publish", AWAY),
}


def test_each_view_that_fails_is_named_and_the_others_go_live(staged: Staged) -> None:
    stage = staged(FAILING)
    stage.registry.states = {("first", 0): "live", ("at_index", 0): "live"}
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all(views("first", *FAILING, "last"))}
    assert stage.engine.passes == [["first", "at_load", "at_index", "at_publish", "last"]]
    assert isinstance(outcomes["first"], Rebuilt)
    assert isinstance(outcomes["last"], Rebuilt)
    for name, phase in {"at_create": "create", "at_bulk": "bulk", "at_load": "bulk", "at_index": "index"}.items():
        assert f'rebuild of "{name}" failed during {phase}: ' in str(outcomes[name])
    assert isinstance(outcomes["at_publish"], NotPublished)
    assert stage.registry.states == {
        ("first", 0): "retired",
        ("first", 1): "live",
        ("at_index", 0): "live",
        ("at_publish", 1): "live",
        ("last", 1): "live",
    }, "nothing is left of the others"
    assert stage.registry.held == set()
    phases = {name: [phase for view, phase in stage.registry.noted if view == name] for name in ("first", "at_load")}
    assert phases == {
        "first": ["create", "bulk", "index", "catch-up", "swap", "hand-over", "ended"],
        "at_load": ["create", "bulk", "ended"],
    }


UNFORESEEN: Failing = {
    "at_start": ("begin", KeyError("no such table")),
    "at_create": ("create", KeyError("no such table")),
    "at_bulk": ("bulk_writer", ZeroDivisionError("a bug")),
    "at_index": ("finish", KeyError("no such table")),
    "at_drop": ("drop", KeyError("no such table")),
}


def test_an_error_that_nobody_foresaw_fails_its_own_view(
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = staged(UNFORESEEN)

    def begin(view: TableView, *more: object) -> Any:
        if view.name == "at_start":
            raise UNFORESEEN["at_start"][1]
        return Registry.begin(stage.registry, view, *more)

    monkeypatch.setattr(stage.registry, "begin", begin)
    stage.registry.states = {("at_drop", -1): "retired", ("at_drop", 0): "live", ("at_index", 0): "live"}
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all(views("first", *UNFORESEEN, "last"))}
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, Rebuilt)} == {"at_drop", "first", "last"}
    for name, phase in {"at_start": "start", "at_create": "create", "at_bulk": "bulk", "at_index": "index"}.items():
        error = UNFORESEEN[name][1]
        assert isinstance(outcomes[name], RebuildFailed)
        assert f'rebuild of "{name}" failed during {phase}: {type(error).__name__}: {error};' in str(outcomes[name])
    assert stage.registry.live().keys() == {"at_drop", "at_index", "first", "last"}
    assert stage.registry.held == set()
    told = {record.exc_info[1] for record in caplog.records if record.exc_info}
    assert told == {error for _, error in UNFORESEEN.values()}, "with a traceback"


def test_an_engine_with_a_defect_fails_the_views_that_it_folds(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: object) -> list[Any]:
        raise ZeroDivisionError("a bug")

    stage = staged({})
    observed(stage, "passed/s1/1")
    monkeypatch.setattr(stage.engine, "bulk_load", dead)
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([*views("a", "b"), gate_view()])}
    assert isinstance(outcomes["gates"], Rebuilt)
    for name in "ab":
        assert f'rebuild of "{name}" failed during bulk: ZeroDivisionError: a bug' in str(outcomes[name])


@pytest.mark.parametrize("realtime", [False, True])
def test_a_query_with_a_defect_fails_its_own_view(staged: Staged, realtime: bool) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    stage.queries.error = NotImplementedError("by this engine")
    gates, others = gate_view(realtime=realtime), [replace(gate_view(), name="others")]
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([gates, *others])}
    for name in ("gates", "others"):
        assert f'rebuild of "{name}" failed during bulk: NotImplementedError: by this engine' in str(outcomes[name])


KINDS: dict[str, View] = {
    "folded": views("failing")[0],
    "stream": replace(gate_view(), name="failing"),
    "realtime": replace(gate_view(realtime=True), name="failing"),
}


@pytest.mark.parametrize(
    ("at", "kind", "error"),
    [  # every place with every kind, and both errors with each of them
        (at, kind, (AWAY, KeyError("a bug"))[(number + other) % 2])
        for number, at in enumerate(("lock", "open", "drop", "registry", "create"))
        for other, kind in enumerate(KINDS)
    ],
)
def test_a_view_that_fails_before_its_build_begins_is_named_and_stops_no_other(
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    error: Exception,
    at: str,
) -> None:
    stage = staged({"failing": (at, error)})
    broken = {"lock": (stage.registry, "rebuilding"), "registry": (stage.registry, "begin")}
    if at in broken:
        fail_for("failing", *broken[at], error, monkeypatch)
    if at == "open":
        fail_for("failing", rebuilder, "opened", error, monkeypatch)
    if at == "drop":  # what an interrupted rebuild has left
        stage.registry.states = {("failing", 0): "building"}
    before = dict(stage.registry.states)
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([KINDS[kind], *views("a"), gate_view()])}
    assert isinstance(outcomes["failing"], RebuildFailed)
    assert f'rebuild of "failing" failed during {"create" if at == "create" else "start"}: ' in str(outcomes["failing"])
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, Rebuilt)} == {"a", "gates"}
    assert stage.registry.states == before | {("a", 1): "live", ("gates", 1): "live"}
    assert stage.registry.held == set()


def fail_for(view: str, owner: Any, method: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a method that takes a view, or its name, first raise `error` for this one."""
    works = getattr(owner, method)

    def fails(of: View | str, *more: object) -> Any:
        if view in (of, getattr(of, "name", None)):
            raise error
        return works(of, *more)

    monkeypatch.setattr(owner, method, fails)


def test_a_query_that_cannot_begin_elsewhere_fails_its_own_view(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(target: Target) -> None:
        if target.view.name == "gates":
            raise PermissionError("the folder of checkpoints")

    stage = staged({})
    monkeypatch.setattr(stage.queries, "begin", begin)
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([gate_view(), gate_view(name="doors")])}
    assert 'rebuild of "gates" failed during index: the folder of checkpoints' in str(outcomes["gates"])
    assert isinstance(outcomes["doors"], Rebuilt)
    assert stage.registry.states == {("doors", 1): "live"}


@pytest.mark.parametrize(("rows", "refused", "fails"), [
    (0, 10, False), (0, 11, True), (1, 11, False), (0, 10_001, True), (89_999, 10_001, True), (90_010, 10_001, False),
])  # fmt: skip
def test_a_store_that_refuses_most_rows_fails_the_view(
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    refused: int,
    fails: bool,
) -> None:
    stage, added = staged({}), list[int]()

    def add_rows(_: Rebuild, __: object, keys: Set[str]) -> int:
        added.append(len(keys))
        return 0

    keys = frozenset(map(str, range(refused)))
    result = BulkResult(rows + refused, rows, 0.1, refused=[keys])
    monkeypatch.setattr(stage.engine, "bulk_load", lambda loads: [result] * len(loads))
    monkeypatch.setattr(Rebuild, "add_rows", add_rows)
    ((_, outcome),) = stage.rebuilder.rebuild_all(views("counted"), skip_poison=True)
    if fails:
        assert f"memory refuses {refused:,} of {rows + refused:,} rows" in str(outcome)
        assert stage.registry.states == {}
    else:
        assert isinstance(outcome, Rebuilt)
        assert added == [refused]


def test_an_error_after_the_swap_is_told_and_the_rebuild_has_been_made(
    staged: Staged, caplog: pytest.LogCaptureFixture
) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    stage.queries.last = StreamQueryFailed("gates@1.g1", "Spark does not answer")
    stage.registry.states = {("gates", 0): "live"}
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert isinstance(outcome, Rebuilt)
    assert stage.registry.states == {("gates", 0): "retired", ("gates", 1): "live"}
    assert 'generation 1 of "gates" is live; an error came after that: ' in caplog.text
    assert "Spark does not answer" in caplog.text
    assert "untouched" not in caplog.text


def test_a_store_that_is_slow_to_build_indexes_is_asked_again_and_the_log_is_read_once(
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage, left = staged({}), [AWAY, AWAY]

    def finish(_: Store, target: Target, at_least: int = 0) -> Collection[str]:
        if left:
            raise left.pop()
        return ()

    monkeypatch.setattr(Store, "finish", finish)
    ((_, outcome),) = stage.rebuilder.rebuild_all(views("slow"))
    assert isinstance(outcome, Rebuilt)
    assert stage.engine.passes == [["slow"]]
    assert caplog.text.count("PostgreSQL is unavailable: gone") == 2


def test_a_log_that_is_away_fails_every_view_by_name(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> int:
        raise LogUnavailable("reading the end", "no broker")

    stage = staged({})
    monkeypatch.setattr(stage.log, "end", away)
    outcomes = list(stage.rebuilder.rebuild_all(views("first", "last")))
    assert [view.name for view, _ in outcomes] == ["first", "last"]
    for view, outcome in outcomes:
        assert isinstance(outcome, RebuildFailed)
        assert f'"{view.name}" failed during start: the log is unavailable' in str(outcome)


@pytest.mark.parametrize(("exists", "why"), [
    (False, 'there is no topic "cdc.shop.public.customers": start `headwater projections` with this code, which'),
    (True, 'the log is unavailable while asking for the end of "cdc.shop.public.customers": no leader;'),
])  # fmt: skip
def test_a_topic_without_an_end_fails_only_the_views_that_read_it(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, exists: bool, why: str
) -> None:
    stage, asked = staged({}), list[str]()
    end = stage.log.end
    customers = [replace(customer_360, name=name, stores=(Postgres(),)) for name in ("customers", "buyers")]
    table = "cdc.shop.public.customers"
    if exists:
        stage.log.submit(Entry(table, "1", b"{}", 1), 0).result()

    def no_leader(topic: str, partition: int) -> int:
        asked.append(topic)
        if topic == table:
            raise LogUnavailable(f'asking for the end of "{topic}"', "no leader")
        return end(topic, partition)

    monkeypatch.setattr(stage.log, "end", no_leader)
    first, last = views("first", "last")
    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([first, *customers, last])}
    for name in ("customers", "buyers"):
        assert f'"{name}" failed during start: {why}' in str(outcomes[name])
    assert isinstance(outcomes["first"], Rebuilt)
    assert isinstance(outcomes["last"], Rebuilt)
    assert stage.engine.passes == [["first", "last"]]
    assert stage.registry.states == {("first", 1): "live", ("last", 1): "live"}
    assert asked.count(table) == exists, "a client waits for a leader for 15 s"


def test_many_views_take_several_passes_and_an_interruption_leaves_nothing(staged: Staged) -> None:
    stage = staged({"view_17": ("finish", KeyboardInterrupt())})
    names = [f"view_{number}" for number in range(MAX_TOGETHER + 3)]
    done = []
    with pytest.raises(KeyboardInterrupt):
        for view, outcome in stage.rebuilder.rebuild_all(views(*names)):
            assert isinstance(outcome, Rebuilt)
            done.append(view.name)
    assert stage.engine.passes == [names[:MAX_TOGETHER], names[MAX_TOGETHER:]]
    assert done == names[:17]
    assert stage.registry.states == {(name, 1): "live" for name in done}
    assert stage.registry.held == set()


def test_the_first_start_builds_the_views_that_can_be_built_and_names_the_others(
    staged: Staged,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    stage = staged(FAILING)

    @contextmanager
    def rebuilding(_: Service, __: object) -> Iterator[Rebuilder]:
        yield stage.rebuilder

    monkeypatch.setattr(Service, "_rebuilding", rebuilding)

    def build(*names: str) -> list[str]:
        wanted = views(*names)
        registry = ViewRegistry([("here", view) for view in wanted])
        return [view.name for view in Service(LogSettings(state=tmp_path), StoreSettings(), registry)._build(wanted)]

    unbuilt = [name for name in FAILING if name != "at_publish"]
    with caplog.at_level(logging.ERROR):
        assert build(*FAILING, "last") == unbuilt
    assert stage.registry.live().keys() == {"at_publish", "last"}
    assert {name for name in FAILING if f'"{name}"' in caplog.text} == set(FAILING)
    assert all(f"`replay rebuild {name}`" in caplog.text for name in unbuilt)
    with pytest.raises(RebuildFailed, match='"at_create" failed during create'):
        build(*unbuilt)  # nothing can be served


@dataclass(frozen=True)
class Running:
    """Parts of which these run."""

    parts: frozenset[str]

    def is_up(self, part: str) -> bool:
        return part in self.parts

    def restart(self, part: str) -> None: ...


@pytest.mark.parametrize("running", [{"postgres"}, {"elasticsearch", "live"}])
def test_a_replay_waits_for_loaders_only_if_they_run(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, running: set[str]
) -> None:
    stage = staged({})
    stage.registry.states = {("far", 0): "live", ("lost", 0): "live"}
    monkeypatch.setattr(Service, "_rebuilding", lambda *_: nullcontext(stage.rebuilder))
    service = Service(SETTINGS, StoreSettings(), ViewRegistry([]))
    parts: Any = Running(frozenset(running))
    with service._replaying(parts, service._sessions()) as replay:
        outcomes = [outcome for _, outcome in replay(views("far", "lost"))]
    waited = ["hand-over" in outcome.phases for outcome in outcomes if isinstance(outcome, Rebuilt)]
    assert waited == ["postgres" in running] * 2
    assert stage.engine.passes == [["far", "lost"]]


def test_a_stream_view_is_built_by_its_own_query_after_the_folded_views(staged: Staged) -> None:
    stage = staged({})
    observed(stage, "heartbeat/1")
    ((_, first),) = stage.rebuilder.rebuild_all([gate_view()])
    assert isinstance(first, Rebuilt)
    assert (stage.queries.begun, stage.queries.ran) == (["gates@1.g1"], []), "without records, nothing need run here"
    observed(stage, "passed/s1/1")
    stage.registry.states = {("gates", 0): "live"}
    outcomes = list(stage.rebuilder.rebuild_all([gate_view(), *views("folded")]))
    assert [view.name for view, outcome in outcomes if isinstance(outcome, Rebuilt)] == ["folded", "gates"]
    assert stage.queries.ran == [("gates@1.g2", True)]
    assert stage.engine.passes == [["folded"]]
    assert stage.registry.states == {("gates", 0): "retired", ("gates", 2): "live", ("folded", 1): "live"}
    assert list(stage.rebuilder.rebuild_all([])) == []


def test_stream_views_are_rebuilt_a_few_at_a_time_and_one_that_fails_leaves_the_others_alone(staged: Staged) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    names = ["slow", "failing", "quick", "next", "last"]
    stage.queries.looks = {"slow": (12, None), "failing": (1, StreamQueryFailed("failing@1.g1", "no memory"))}
    outcomes = list(stage.rebuilder.rebuild_all([gate_view(name=name) for name in names]))
    assert [view.name for view, _ in outcomes] == ["failing", "quick", "next", "last", "slow"], "as they end"
    assert {view.name: str(each) for view, each in outcomes if not isinstance(each, Rebuilt)} == {
        "failing": 'rebuild of "failing" failed during bulk: the query of the stream view "failing@1.g1" failed: '
        "no memory; the live generation is untouched"
    }
    assert stage.queries.most_at_once == QUERIES_TOGETHER
    assert stage.registry.states == {(name, 1): "live" for name in names if name != "failing"}
    assert stage.registry.held == set()


def test_a_real_time_view_begins_when_no_other_query_is_left_to_begin(staged: Staged) -> None:
    """Its rows are computed in one call, for which the others would have to wait."""
    stage, begun = staged({}), list[str]()
    at_once = gate_view(name="at_once", realtime=True)
    others = [gate_view(name=f"in_batches_{number}") for number in range(QUERIES_TOGETHER + 1)]

    def note(step: Step) -> None:
        if step.phase == "create":
            begun.append(step.view)

    outcomes = list(stage.rebuilder.rebuild_all([at_once, *others], note))
    assert all(isinstance(outcome, Rebuilt) for _, outcome in outcomes)
    assert begun == [view.name for view in (*others, at_once)]


@pytest.mark.parametrize("interrupted", ["first", "second"])
def test_an_interruption_stops_all_queries_and_leaves_nothing(staged: Staged, interrupted: str) -> None:
    stage, names = staged({}), ["first", "second", "third", "fourth"]
    observed(stage, "passed/s1/1")
    stage.registry.states = {(name, 0): "live" for name in names}
    before = dict(stage.registry.states)
    stage.queries.looks = dict.fromkeys(names, (1_000, None)) | {interrupted: (3, KeyboardInterrupt())}
    with pytest.raises(KeyboardInterrupt):
        list(stage.rebuilder.rebuild_all([gate_view(name=name) for name in names]))
    assert [tag for tag, _ in stage.queries.ran] == [f"{name}@1.g1" for name in names[:QUERIES_TOGETHER]]
    assert stage.queries.running_now == set()
    assert stage.registry.states == before
    assert stage.registry.held == set()


def test_a_stream_view_whose_query_fails_leaves_the_live_generation(staged: Staged) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    stage.registry.states = {("gates", 0): "live"}
    stage.queries.error = StreamQueryFailed("gates@1.g1", "no memory")
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert 'rebuild of "gates" failed during bulk: the query of the stream view "gates@1.g1" failed' in str(outcome)
    assert stage.registry.states == {("gates", 0): "live"}
    assert stage.registry.held == set()
    with pytest.raises(RebuildFailed, match='"gates" is a stream view, which is only built from all records'):
        stage.rebuilder.build_part(gate_view(), "part", Options())


def test_a_stream_view_whose_query_another_machine_runs_is_not_built_and_names_it(staged: Staged) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    stage.registry.query_holders["gates@1.g1"] = "the read side, process 7 on other"
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert "another process runs it (the read side, process 7 on other): wait until it has stopped" in str(outcome)
    del stage.registry.query_holders["gates@1.g1"]
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert isinstance(outcome, Rebuilt)
    assert stage.registry.query_holders == {}, "released"


@pytest.mark.parametrize("moves_during_build", [False, True])
def test_a_stream_view_that_the_running_read_side_could_not_continue_is_not_made_live(
    staged: Staged, moves_during_build: bool
) -> None:
    stage = staged({})
    observed(stage, "passed/s1/1")
    other = StatePlace("other", "host:/state", 3.0)
    stage.registry.places = [] if moves_during_build else [other]

    def on_step(step: Step) -> None:
        if step.view == "gates":
            stage.registry.places = [other]

    outcomes = {view.name: each for view, each in stage.rebuilder.rebuild_all([gate_view(), *views("a")], on_step)}
    assert isinstance(outcomes["a"], Rebuilt)
    assert isinstance(outcomes["gates"], RebuildFailed)
    assert outcomes["gates"].phase == ("swap" if moves_during_build else "start")
    assert bool(stage.queries.ran) == moves_during_build
    assert "keeps the state of stream views at host:/state, and this process at " in str(outcomes["gates"])
    assert ("gates", 1) not in stage.registry.states


def test_a_generation_has_a_number_above_what_stores_show(staged: Staged) -> None:
    """After a restore of PostgreSQL, the number that comes next is that of live rows."""
    stage, (view,) = staged({"a": ("load", RuntimeError("no"))}), views("a")
    shown = Target(view, 7)
    stage.store.create(shown, {}, {0: 0})
    stage.store.publish(shown)
    stage.registry.states["a", 1] = "live"
    ((_, failed),) = stage.rebuilder.rebuild_all([view])
    assert isinstance(failed, RebuildFailed)
    assert stage.registry.states == {("a", 1): "live"}, "that of the rebuild is gone again"
    assert stage.store.ledgers(shown)
    stage.engine.failing = {}
    ((_, rebuilt),) = stage.rebuilder.rebuild_all([view])
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.generation == 8
    assert stage.store.shown("a") == 8
