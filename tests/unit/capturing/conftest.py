"""Fixtures for tests of captured databases."""

from __future__ import annotations

import pytest

from tests.unit.capturing.captured_world import World, world_in_memory


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return world_in_memory(monkeypatch)
