"""Commands under kills, pauses, rebalances and restarts of the broker: the quick run."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.faults import NETWORK, WRITE_SIDE, Kind
from tests.simulation.run import simulate

SECONDS = 14.1
"""Of faults: at least two, and about three; `make soak` has all of them many times."""


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("kill", "kill broker"), id="kills"),
        pytest.param(tuple(NETWORK), id="network", marks=pytest.mark.complete),
        pytest.param(WRITE_SIDE, id="any", marks=pytest.mark.complete),  # about three of six kinds, drawn by the seed
    ],
)
def test_no_acknowledged_command_is_lost_doubled_reordered_or_half_done(tmp_path: Path, kinds: Sequence[Kind]) -> None:
    seed = int(os.environ.get("HEADWATER_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HEADWATER_SEED={seed} repeats the faults and the commands")
    outcome = simulate(seed, SECONDS, tmp_path, kinds=kinds)
    print(outcome._replace(complaints=[]))
    assert outcome.complaints == []
    # on a busy machine few commands are answered between the faults, but some of each kind
    assert outcome.outcomes["accepted"] > 0
    assert outcome.outcomes["conflict"] + outcome.outcomes["rejected"] > 0
    assert outcome.retries > 0
