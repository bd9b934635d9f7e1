"""A deployment in memory whose views are rebuilt."""

from __future__ import annotations

import pytest

from tests.unit.projections import rebuild_stage
from tests.unit.projections.rebuild_stage import Staged


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Staged:
    """Makes the deployment; of its views, some may fail."""
    return lambda failing: rebuild_stage.staged(monkeypatch, failing)
