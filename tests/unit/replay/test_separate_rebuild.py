"""What `replay verify` says if it cannot compare a view with its rebuild."""

from __future__ import annotations

import pytest

from projections.errors import RebuildFailed
from projections.stores.store import Target
from replay import separate_rebuild
from replay.separate_rebuild import verify
from tests.observed import gate_view
from tests.unit.projections.rebuild_stage import Stage, observed, staged


def test_a_live_generation_that_stays_behind_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage, view = staged(monkeypatch, {}), gate_view()
    live_generation(stage)
    observed(stage, "passed/s1/1")
    monkeypatch.setattr(separate_rebuild, "COVER_S", 0.0)
    with pytest.raises(RebuildFailed) as failed:
        verify(stage.rebuilder, view)
    assert str(failed.value) == (
        'rebuild of "gates" failed during compare: memory has not applied all of source observations/1: see '
        "`replay status`; without new events, it needs the heartbeats of a running `python -m commands`; the live "
        "generation is untouched"
    )
    assert not caplog.records, "it is no defect"
    assert stage.registry.states == {("gates", 0): "live"}, "the rebuild is dropped"


def live_generation(stage: Stage) -> None:
    stage.registry.states = {("gates", 0): "live"}
    stage.store.create(Target(gate_view(), 0), {}, {0: 0, 1: 0})
