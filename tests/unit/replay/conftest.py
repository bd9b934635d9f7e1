"""A deployment in memory for the `replay` command."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.replay import list_views, status
from tests.unit.replay.played import Reader, Stage


@pytest.fixture(scope="session")
def shipped() -> ViewRegistry:
    """The views that come with Headwater."""
    return ViewRegistry.load(["listings"])


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, shipped: ViewRegistry, tmp_path: Path) -> Stage:
    """What the command finds wherever it would look for servers."""
    made = Stage()
    monkeypatch.setenv("HEADWATER_MODULES", "listings")
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(ViewRegistry, "load", lambda *_: shipped)
    monkeypatch.setattr("headwater.replay.deployment.KafkaLog", lambda _: made.log)
    monkeypatch.setattr("headwater.replay.deployment.Generations", lambda *_: made.registry)
    monkeypatch.setattr("headwater.replay.deployment.Rebuilder", lambda *_: made)
    monkeypatch.setattr("headwater.replay.rebuild.start_spark", lambda: None)
    monkeypatch.setattr(
        "headwater.projections.generations.registry.publishing.open_store", lambda name, _: MemoryStore(Memory())
    )
    monkeypatch.setattr(status, "Lags", lambda *_: made)
    monkeypatch.setattr(list_views, "open_reader", lambda name, _: Reader(made.sizes, name))
    return made
