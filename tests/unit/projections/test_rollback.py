"""Going back to the previous generation, in memory."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace

import pytest

from headwater.eventlog.audit.trail import AuditRecord, Outcome
from headwater.eventlog.ports import Entry
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import AUDIT, PATCHES
from headwater.projections.errors import RollbackFailed
from headwater.projections.generations.rebuild import rebuilder
from headwater.projections.generations.rebuild.rebuild import Rebuild, Rebuilt
from headwater.projections.generations.registry.state_files import StatePlace
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import BY_GROUP
from tests.support.observed import gate_view
from tests.unit.projections.rebuild_stage import Stage, Staged, views


def two_generations(stage: Stage) -> None:
    """Of `gates`: the first one can be rolled back to."""
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert isinstance(outcome, Rebuilt)
    stage.registry.states = {("gates", 1): "retired", ("gates", 2): "live"}


def test_a_stream_view_is_rolled_back_by_its_query(staged: Staged) -> None:
    stage = staged({})
    two_generations(stage)
    assert stage.rebuilder.roll_back(gate_view()).generation == 1
    assert stage.queries.ran == [("gates@1.g1", False)]
    assert stage.registry.states == {("gates", 1): "live", ("gates", 2): "retired"}


def test_a_stream_view_is_not_rolled_back_without_its_state(staged: Staged) -> None:
    stage = staged({})
    two_generations(stage)
    stage.queries.lost = "is older than its rows"
    with pytest.raises(RollbackFailed) as failed:
        stage.rebuilder.roll_back(gate_view())
    assert str(failed.value) == (
        'rollback of "gates" failed: its state is older than its rows: run `replay rebuild gates`; '
        "the live generation is untouched"
    )
    assert stage.queries.ran == []
    assert stage.registry.states == {("gates", 1): "retired", ("gates", 2): "live"}


def test_a_stream_view_is_not_rolled_back_if_patches_that_it_needs_are_gone(staged: Staged) -> None:
    stage = staged({})
    two_generations(stage)
    for _ in range(3):
        stage.log.submit(Entry(PATCHES, "progress/0", b"{}", 1), 1).result()
    stage.log.delete(PATCHES, 1, 2)
    with pytest.raises(RollbackFailed, match="failed: the patches that it needs are gone: run `replay rebuild gates`"):
        stage.rebuilder.roll_back(gate_view())
    assert stage.queries.ran == [], "it would wait for loaders that leave the generation out"
    assert stage.registry.states == {("gates", 1): "retired", ("gates", 2): "live"}


def test_nothing_is_rolled_back_to_a_generation_of_a_topic_that_was_made_again(staged: Staged) -> None:
    stage = staged({})
    two_generations(stage)
    stage.registry.topics = {PATCHES: "another"}
    with pytest.raises(RollbackFailed, match='generation 1: topic "patches" was recreated since'):
        stage.rebuilder.roll_back(gate_view())
    assert stage.registry.states == {("gates", 1): "retired", ("gates", 2): "live"}


def test_without_a_previous_generation_there_is_no_rollback_and_no_word_of_a_rebuild(staged: Staged) -> None:
    stage = staged({})
    ((_, outcome),) = stage.rebuilder.rebuild_all([gate_view()])
    assert isinstance(outcome, Rebuilt)
    stage.registry.states = {("gates", 1): "live"}
    with pytest.raises(RollbackFailed) as failed:
        stage.rebuilder.roll_back(gate_view())
    assert str(failed.value) == (
        'rollback of "gates" failed: there is no previous generation: see `replay generations gates`; '
        "the live generation is untouched"
    )


def test_a_stream_view_is_not_rolled_back_from_a_folder_that_is_not_the_read_sides(staged: Staged) -> None:
    stage = staged({})
    two_generations(stage)
    stage.registry.places = [StatePlace("other", "host:/state", 3.0)]
    with pytest.raises(RollbackFailed, match="the running read side keeps the state of stream views at host:/state"):
        stage.rebuilder.roll_back(gate_view())
    assert stage.queries.ran == []


@pytest.mark.parametrize(
    ("verb", "target", "outcome", "is_refused"),
    [
        ("replay erase", "thing/T1/2", None, True),
        ("replay erase", "unknown/T1", "done", True),
        ("replay erase", "thing/T1/2", "failed", True),
        ("replay erase", "thing/T1/2", "refused", False),
        ("replay erase", "listing/L1", "done", False),
        ("replay rebuild", "thing/T1/2", "done", False),
    ],
)
def test_nothing_is_rolled_back_to_a_generation_that_has_erased_events(
    verb: str, target: str, outcome: Outcome | None, is_refused: bool, staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, (view,) = staged({}), views("by_group")
    stage.registry.view = view
    monkeypatch.setattr(Rebuild, "top_up", lambda _: 0)
    monkeypatch.setattr(rebuilder, "CommandRegistry", RegistryOfThings)
    for number, state in ((1, "retired"), (2, "live")):
        stage.store.create(Target(view, number), {}, {0: 0, 1: 0})
        stage.registry.states["by_group", number] = state
    begun = AuditRecord.begin(verb, {"target": target, "yes": True}, "test", {})
    for record in (begun, begun.ended(outcome, 0, "")) if outcome else (begun,):
        stage.log.submit(Entry(AUDIT, record.action, record.to_json(), now_ms()), 0).result()
    if is_refused:
        expected = f"generation 1 is older than `replay erase {target}`, and may have what was erased: run `replay reb"
        with pytest.raises(RollbackFailed, match=expected):
            stage.rebuilder.roll_back(view)
        assert stage.registry.states["by_group", 1] == "retired"
    else:
        assert stage.rebuilder.roll_back(view).generation == 1


class RegistryOfThings:
    """Declares things, which the view handles, and listings."""

    aggregates = MappingProxyType(
        {
            "thing": SimpleNamespace(events={event.type: event for event in BY_GROUP.plan.events.values()}),
            "listing": SimpleNamespace(events={"listing.opened": None}),
        }
    )

    @classmethod
    def load(cls, _: object) -> type[RegistryOfThings]:
        return cls
