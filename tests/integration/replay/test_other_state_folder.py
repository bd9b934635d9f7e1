"""`replay` in another folder than that in which the read side keeps the state of stream views."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.integration.replay.deployed import BOUND_S, START_S, Command, Deployed
from tests.integration.replay.gate_traffic import DAY, record, recorded, rows
from tests.integration.replay.gates import gates
from tests.integration.replay.read_side import projections
from tests.support.observed import rows_in_python

pytestmark = [
    pytest.mark.complete,
    pytest.mark.jvm,
    pytest.mark.timeout(3_600),
    pytest.mark.xdist_group("a whole read side"),
]


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.integration.replay.gates",)


def rows_are_pythons(deployed: Deployed, timeout_s: float = BOUND_S) -> None:
    """After a few more observations, which the live query must read."""
    first = len(recorded(deployed))
    record(deployed, range(first, first + 20), random.Random(first))
    expected = rows_in_python(recorded(deployed), DAY)

    def are_in(store: str) -> bool:
        return rows(deployed, store) == expected

    for store in ("postgres", "valkey"):
        deployed.eventually(partial(are_in, store), f"rows in {store}", timeout_s)


def states(deployed: Deployed) -> list[str]:
    return [generation.state for generation in deployed.generations.of(gates.name)]


@pytest.mark.usefixtures("spark")
def test_what_the_read_side_could_not_continue_is_refused_or_computed_again(
    deployed: Deployed,
    replay: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with projections(deployed):
        rows_are_pythons(deployed, START_S)
        monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "elsewhere"))
        status = replay("status", gates.name)
        assert status.code == 0
        assert {(row["generation"], row["stream"]) for row in status.document} == {(1, None)}, "the query is elsewhere"
        refused = replay("rebuild", gates.name)
        assert refused.code == 1
        assert (
            "its query could not continue: the running read side keeps the state of stream views" in refused.complaint
        )
        assert str(deployed.settings.state) in refused.complaint
        verified = replay("verify", gates.name)
        assert verified.code == 0, verified.complaint or verified.document
        assert states(deployed) == ["live"]
        rows_are_pythons(deployed)
    with psycopg.connect(deployed.stores.postgres, autocommit=True) as registry:
        registry.execute(
            f"UPDATE {deployed.settings.environment}._state_places SET noted_at = now() - interval '11 minutes'"
        )
    rebuilt = replay("rebuild", gates.name)
    assert rebuilt.code == 0, "no read side runs that could be in the way"
    assert "if it has another folder than" in caplog.text
    assert states(deployed)[-1] == "live"
    with projections(deployed):
        rows_are_pythons(deployed, START_S)
        assert states(deployed)[-1] == "live"
