"""Rebuilds that are killed, or that lose a store: the live view goes on, and the next rebuild succeeds."""

from __future__ import annotations

import signal
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from headwater.projections.engines import EngineChoice
from headwater.projections.errors import RebuildFailed
from headwater.projections.generations.rebuild.rebuild import Rebuilt, Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.stores.store import Target
from tests.integration.projections.cut_proxy import CutProxy
from tests.integration.replay import interrupted_together
from tests.integration.replay.deployed import START_S, Deployed
from tests.integration.replay.interruptible import INTERRUPTED
from tests.integration.replay.things import by_group, things

pytestmark = pytest.mark.xdist_group("another Spark session")

ALONE = "tests.integration.replay.interrupted"
TOGETHER = "tests.integration.replay.interrupted_together"
LIVE_AFTER_KILL = {"create": 1, "bulk": 1, "index": 1, "catch-up": 1, "swap": 2, "hand-over": 2}


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("listings", "tests.integration.replay.interruptible")


def rebuilder(deployed: Deployed) -> Rebuilder:
    deployed.generations.prepare()
    return deployed.rebuilder()


@pytest.mark.parametrize("choice", [EngineChoice.LOCAL, pytest.param(EngineChoice.SPARK, marks=pytest.mark.complete)])
def test_a_rebuild_killed_in_any_phase_leaves_the_view_serving_and_the_next_one_removes_the_remains(
    deployed: Deployed, choice: EngineChoice
) -> None:
    views = list(INTERRUPTED.values())
    for view in views:
        rebuilder(deployed).rebuild(view)
    events = things(160)
    deployed.append(events[:80])
    deployed.emit(views)
    with deployed.served(views):
        for view in views:
            deployed.rows_become_the_references(view)

        killed = deployed.start(ALONE, choice.value)
        assert deployed.ended(killed, START_S) == -signal.SIGKILL, deployed.output(ALONE)
        live = {generation.view: generation.generation for generation in deployed.generations.live().values()}
        assert live == {INTERRUPTED[phase].name: number for phase, number in LIVE_AFTER_KILL.items()}
        deployed.append(events[80:120])
        deployed.emit(views)
        for phase, view in INTERRUPTED.items():
            if phase == "swap":
                # the process that serves repairs the aliases when it starts; the API does not read them
                assert not deployed.generations.live()[view.name].published
                assert deployed.replay("publish", view.name)[0] == 0
            deployed.rows_become_the_references(view)

        code, told, complaint = deployed.replay("rebuild", *(view.name for view in views))
        assert code == 0, complaint
        assert {view["view"] for view in told["views"]} == set(live)
        deployed.append(events[120:])
        deployed.emit(views)
        for phase, view in INTERRUPTED.items():
            deployed.rows_become_the_references(view)
            states = {generation.generation: generation.state for generation in deployed.generations.of(view.name)}
            last = LIVE_AFTER_KILL[phase]
            assert states == {last: "retired", max(states): "live"}, view.name
            assert max(states) == 3
            for name in ("elasticsearch", "valkey"):
                assert deployed.servers[name].remains(Target(view, 2)) == (2 in states), (view.name, name)


@pytest.mark.complete
def test_views_that_are_rebuilt_in_one_pass_are_whole_whenever_it_is_killed(deployed: Deployed) -> None:
    views = list(INTERRUPTED.values())
    names = [view.name for view in views]
    for _, outcome in rebuilder(deployed).rebuild_all(views):
        assert isinstance(outcome, Rebuilt), outcome
    events = things(240, seed=3)
    deployed.append(events[:160])
    deployed.emit(views)

    def live() -> list[int]:
        found = deployed.generations.live()
        return [found[name].generation for name in names]

    def killed(phase: str) -> str:
        process = deployed.start(TOGETHER, phase)
        assert deployed.ended(process, START_S) == -signal.SIGKILL, deployed.output(TOGETHER)
        return deployed.output(TOGETHER)

    with deployed.served(views):
        killed("bulk")
        assert live() == [1] * len(views)
        kept = interrupted_together.slices_of(deployed.settings.state)
        assert len(kept) == interrupted_together.SLICES

        assert killed("swap").count("was folded before") == interrupted_together.SLICES
        assert live() == [3, *[1] * (len(views) - 1)], "only the first was swapped"
        deployed.append(events[160:200])
        deployed.emit(views)
        for view in views:
            deployed.rows_become_the_references(view)

        with deployed.generations.rebuilding(names[-1]):
            code, told, complaint = deployed.replay("rebuild", *names)
        assert code == 1
        assert [view["view"] for view in told["views"]] == names[:-1], complaint
        assert [view["view"] for view in told["failed"]] == names[-1:]
        assert "another rebuild is running" in complaint
        assert live() == [4] * (len(views) - 1) + [1]
        deployed.append(events[200:])
        deployed.emit(views)
        for view in views:
            deployed.rows_become_the_references(view)
            states = [generation.state for generation in deployed.generations.of(view.name)]
            assert states == (["retired", "live"] if view is not views[-1] else ["live", "building"]), view.name


@pytest.mark.complete
def test_a_store_that_goes_away_in_the_middle_fails_the_rebuild_by_name_and_leaves_the_view(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilder(deployed).rebuild(by_group)
    deployed.append(things(40, seed=2))
    deployed.emit([by_group])
    address = urlsplit(deployed.stores.elasticsearch)
    proxy = CutProxy(str(address.hostname), int(address.port or 0))
    url = address._replace(netloc=f"{address.hostname}:{proxy.port}").geturl()
    through = replace(rebuilder(deployed), stores=replace(deployed.stores, elasticsearch=url))

    def cut(step: Step) -> None:
        if step.phase == "index":
            proxy.cut()

    try:
        with deployed.served([by_group]):
            failed = pytest.raises(RebuildFailed, match=r"failed during index: Elasticsearch is unavailable.*untouched")
            with monkeypatch.context() as impatient, failed:
                impatient.setattr("headwater.projections.generations.rebuild.rebuild.INDEX_AWAY_S", 0.5)
                through.rebuild(by_group, cut)
            assert deployed.generations.live()["by_group"].generation == 1
            assert [generation.state for generation in deployed.generations.of("by_group")] == ["live", "building"]
            deployed.rows_become_the_references(by_group)
            proxy.mend()
            assert through.rebuild(by_group).generation == 3
            assert [generation.state for generation in deployed.generations.of("by_group")] == ["retired", "live"]
            assert not deployed.servers["valkey"].remains(Target(by_group, 2))
            deployed.rows_become_the_references(by_group)
    finally:
        proxy.close()
