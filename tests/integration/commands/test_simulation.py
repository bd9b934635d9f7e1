"""Commands under kills, pauses, rebalances and restarts of the broker: the quick run."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.simulation.run import simulate

SECONDS = 14.0
"""Of faults: about three of the six kinds, drawn by the seed; `make soak` has all of them many times."""


def test_no_acknowledged_command_is_lost_doubled_reordered_or_half_done(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HEADWATER_SEED={seed} repeats the faults and the commands")
    outcome = simulate(seed, SECONDS, tmp_path)
    print(outcome._replace(complaints=[]))
    assert outcome.complaints == []
    # on a busy machine few commands are answered between the faults, but some of each kind
    assert outcome.outcomes["accepted"] > 0
    assert outcome.outcomes["conflict"] + outcome.outcomes["rejected"] > 0
    assert outcome.retries > 0
