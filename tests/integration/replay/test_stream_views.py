"""Stream views in a real read side: killed, rebuilt while observations come, verified, and gone back.

All of it with each view; what decides is in `test_replay_under_traffic`.
"""

from __future__ import annotations

import random

import pytest

from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from tests.integration.replay.deployed import START_S, Command, Deployed
from tests.integration.replay.gate_traffic import (
    decide,
    has_rows,
    move,
    record,
    recorded,
    rows_become_python_s,
    traffic,
)
from tests.integration.replay.gates import entered, gates
from tests.integration.replay.read_side import part, projections
from tests.support.carts import carts
from tests.support.collector import Collector, collecting
from tests.support.processes import kill
from tests.support.seeds import is_long
from tests.support.waiting import Latest, eventually

pytestmark = [
    pytest.mark.complete,
    pytest.mark.jvm,
    pytest.mark.timeout(3_600),
    pytest.mark.xdist_group("a whole read side"),
]

VIEWS = (gates.name, entered.name, carts.name)
REBUILT = VIEWS if is_long() else (entered.name, carts.name)
VERIFIED = (gates.name, carts.name) if is_long() else (gates.name,)
ROLLED_BACK = (entered.name, carts.name) if is_long() else (entered.name,)
"""A long run does all of it with a view in batches and with the one in real-time mode; each takes Spark minutes."""


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.integration.replay.gates", "tests.support.carts")


def standings(replay: Command) -> set[str]:
    return {lag["standing"] for lag in replay("status", *VIEWS).document or ()}


def batch_is_traced_into_each_store(collector: Collector) -> None:
    """A batch of `gates` begins a trace, which the loaders of its stores continue."""

    def stores() -> dict[str, set[str]]:
        batches = {span.trace: span.id for span in list(collector.spans) if span.name == "batch gates"}
        found: dict[str, set[str]] = {batch: set() for batch in batches.values()}
        for span in list(collector.spans):
            if span.name == "load gates" and span.parent == batches.get(span.trace):
                assert span.service == f"headwater-load-{span.facts['headwater.store']}"
                found[span.parent].add(str(span.facts["headwater.store"]))
        return found

    expected = {store.name for store in gates.stores}
    eventually(lambda: expected in stores().values(), Latest(lambda: f"{expected} in {stores()}"))
    batches = [span for span in list(collector.spans) if span.name == "batch gates"]
    assert {(batch.parent, batch.service) for batch in batches} == {("", "headwater-streams")}
    assert sum(batch.facts["headwater.records"] for batch in batches) > 0


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_rows_are_those_that_python_computes_after_a_kill_and_a_rebuild_under_traffic(
    deployed: Deployed, replay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        for name, value in collector.variables.items():
            monkeypatch.setenv(name, value)
        hold_under_kills(deployed, replay)
        batch_is_traced_into_each_store(collector)


def hold_under_kills(deployed: Deployed, replay: Command) -> None:
    with projections(deployed) as supervisor:
        with traffic(deployed):
            deployed.eventually(lambda: has_rows(deployed), "the first rows", START_S)
            kill(part(supervisor, "headwater.projections", "streams"))
            kill(part(supervisor, "load", "topic"))
            rebuilt = replay("rebuild", *REBUILT)
            assert rebuilt.code == 0, rebuilt.complaint
            *in_batches, at_once = rebuilt.document["views"]
            assert in_batches
            assert all(batch["events"] > 0 and batch["rows"] is None for batch in in_batches)
            assert at_once["events"] is None
            assert at_once["offsets"] > 0 < at_once["rows"]
            killed_at = len(recorded(deployed))
            eventually(lambda: len(recorded(deployed)) > killed_at + 100, "traffic goes on")
        rows_become_python_s(deployed)
        verified = replay("verify", *VERIFIED)
        assert verified.code == 0, verified.complaint or verified.document
        for name in REBUILT:
            assert [generation.state for generation in deployed.generations.of(name)] == ["retired", "live"]
        rolled_back = replay("rollback", *ROLLED_BACK)
        assert rolled_back.code == 0, rolled_back.complaint
        record(deployed, range(1_000_000, 1_000_050), random.Random(1))
        decide(deployed, range(1_000_000, 1_000_050), random.Random(1))
        move(deployed, range(1_000_000, 1_000_050), random.Random(1))
        rows_become_python_s(deployed)
        for name in REBUILT:
            now = ["live", "retired"] if name in ROLLED_BACK else ["retired", "live"]
            assert [generation.state for generation in deployed.generations.of(name)] == now
        # a view without batches is caught up with the next heartbeat
        deployed.eventually(lambda: standings(replay) == {"caught up"}, "all views are caught up")
    tags = [gates.patch_tag(1), entered.patch_tag(1), entered.patch_tag(2)]
    assert all(Checkpoint.of(deployed.settings, tag).exists for tag in tags)
