"""A rebuild while one partition of the log gets a thousand events a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.projections.engines import EngineChoice
from headwater.projections.generations.rebuild.rebuild import Step
from tests.integration.replay.busy import BUSY, busy_prices, changes
from tests.integration.replay.deployed import START_S, Deployed
from tests.support.traffic import repeated
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Spark session")]

EVENTS_PER_S = 1_000
MOST_AT_ONCE = EVENTS_PER_S // 4
"""After the machine stood still, too."""


@contextmanager
def traffic(deployed: Deployed) -> Iterator[None]:
    """EVENTS_PER_S and their patches until the end of the block; all of them are in the log then.

    Fewer on a machine on which these would leave no processor to the loaders: then no rebuild could end.
    """
    events, last = changes(deployed.settings.partitions), [time.monotonic()]

    def append() -> None:
        before, last[0] = last[0], time.monotonic()
        due = min(int((last[0] - before) * EVENTS_PER_S), MOST_AT_ONCE)
        deployed.append([next(events) for _ in range(due)])
        deployed.emit([busy_prices])

    with repeated(append, 0.02):
        yield


def test_a_rebuild_ends_while_one_partition_gets_a_thousand_events_a_second(deployed: Deployed) -> None:
    rebuilder = deployed.rebuilder(EngineChoice.SPARK)
    deployed.generations.prepare()
    rebuilder.rebuild(busy_prices)
    with deployed.served([busy_prices]), traffic(deployed):
        eventually(lambda: len(deployed.sources) > EVENTS_PER_S, "traffic flows")
        before = len(deployed.sources)

        def many_come(step: Step) -> None:
            """While the rebuild is in the middle, however fast it is, and however slow the traffic."""
            if step.phase == "index":
                eventually(lambda: len(deployed.sources) > before + EVENTS_PER_S, "traffic goes on")

        rebuilt = rebuilder.rebuild(busy_prices, many_come)
        assert rebuilt.events is not None
        assert before <= rebuilt.events <= rebuilt.offsets
    with deployed.served([busy_prices]):
        deployed.rows_become_the_references(busy_prices, START_S)
    assert {source.position.partition for source in deployed.sources} == {BUSY}
