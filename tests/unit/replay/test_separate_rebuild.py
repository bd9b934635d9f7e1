"""What `replay verify` says if it cannot compare a view with its rebuild."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS
from headwater.projections.stores.ledgers import position
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.replay import comparison
from headwater.replay.comparison import let_follow, verify
from headwater.replay.errors import CannotVerify
from tests.contracts.view_histories import BY_GROUP
from tests.support.module_time import set_time
from tests.support.observed import gate_view
from tests.unit.projections.rebuild_stage import Stage, observed, staged


def test_a_live_generation_that_stays_behind_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, view = staged(monkeypatch, {}), gate_view()
    live_generation(stage)
    observed(stage, "passed/s1/1")
    monkeypatch.setattr(comparison, "COVER_S", 0.0)
    with pytest.raises(CannotVerify) as failed:
        verify(stage.rebuilder, view)
    assert str(failed.value) == (
        '"gates" cannot be verified: compare: memory has not applied all of source observations/1, and made no '
        "progress for 0 s: see `replay status`; without new events, it needs the heartbeats of a running "
        "`headwater handler`"
    )
    assert not caplog.records, "it is no defect"
    assert stage.registry.states == {("gates", 0): "live"}, "the rebuild is dropped"


@pytest.mark.parametrize(("last", "waits"), [(heartbeat_key(1), False), ("group/a/1", True)])
def test_a_live_generation_that_lacks_only_heartbeats_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, last: str, waits: bool
) -> None:
    stage, live = staged(monkeypatch, {}), Target(BY_GROUP, 0)
    stage.store.create(live, {"1": 1}, {0: 0, 1: 0})
    for key in ("group/a/0", last):
        stage.log.submit(Entry(EVENTS, key, b"{}", 1), 1).result()
    monkeypatch.setattr(comparison, "live_generation", lambda *_: SimpleNamespace(generation=0))
    monkeypatch.setattr(comparison, "compared_of", lambda *_: {})  # rows of memory
    waited = list[float]()

    def an_event_more(seconds: float) -> None:
        waited.append(seconds)
        stage.store.apply([live], {each: Batch(1, progress={live.tag: {"1": 1}}) for each in (0, 1)})

    set_time(monkeypatch, "headwater.replay.comparison", sleep=an_event_more)
    assert verify(stage.rebuilder, BY_GROUP).equal
    assert bool(waited) is waits


@pytest.mark.parametrize("moves", ["observations/1", "observations/0"])
def test_a_live_generation_may_take_any_time_as_long_as_it_makes_progress_where_it_is_behind(
    monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    stage, view = staged(monkeypatch, {}), gate_view()
    live_generation(stage)
    for number in range(1, 6):
        observed(stage, f"passed/s1/{number}")
    live, offsets = Target(view, 0), count(1)

    def a_record_more(_: float) -> None:
        number = next(offsets)
        stage.store.apply([live], {each: Batch(number, progress={live.tag: {moves: number}}) for each in (0, 1)})

    set_time(monkeypatch, "headwater.replay.comparison", sleep=a_record_more)
    monkeypatch.setattr(comparison, "COVER_S", 0.0)
    monkeypatch.setattr(comparison, "compared_of", lambda *_: {})  # rows of memory
    if moves == "observations/1":
        steps = list[str]()
        verify(stage.rebuilder, view, lambda step: steps.append(step.phase))
        assert next(offsets) == 5
        assert "compare" in steps
        assert "hand-over" not in steps, "nobody takes over what is dropped"
    else:
        with pytest.raises(CannotVerify, match="observations/1, and made no progress"):
            verify(stage.rebuilder, view)


@pytest.mark.parametrize(("ahead", "batches"), [(2, 3), (0, 1)])
def test_a_difference_counts_once_the_live_query_had_a_batch_more_than_what_the_rebuild_has_read(
    monkeypatch: pytest.MonkeyPatch, ahead: int, batches: int
) -> None:
    store, view = MemoryStore(Memory()), gate_view()
    live, rebuild = Target(view, 0), Target(view, 1)
    source = "observations/0"
    for target in (live, rebuild):
        store.create(target, {source: 10}, {0: 0})
    offsets, waited = count(10), list[float]()

    def a_batch_of_each(seconds: float = 0.0) -> None:
        offset = next(offsets)
        progress = {live.tag: {source: offset}, rebuild.tag: {source: offset + ahead}}
        store.apply([live, rebuild], {0: Batch(offset, progress=progress)})
        waited.append(seconds)

    a_batch_of_each()
    read = position(store.ledgers(rebuild), [source])[source]
    set_time(monkeypatch, "headwater.replay.comparison", sleep=a_batch_of_each)
    let_follow(store, [live, rebuild], [source], 60.0)
    assert position(store.ledgers(live), [source])[source] > read, "what is final now comes in the next batch"
    assert len(waited[1:]) == batches, "with a batch every five minutes, each costs five minutes"


def test_queries_that_do_not_move_are_not_waited_for_without_end() -> None:
    store, view = MemoryStore(Memory()), gate_view()
    targets = [Target(view, 0), Target(view, 1)]
    for target in targets:
        store.create(target, {}, {0: 0})
    let_follow(store, targets, ["observations/0"], 0.5)


def live_generation(stage: Stage) -> None:
    stage.registry.states = {("gates", 0): "live"}
    stage.store.create(Target(gate_view(), 0), {}, {0: 0, 1: 0})
