"""A rebuild while one partition of the log gets a thousand events a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.replay.busy import BUSY, busy_prices, changes
from tests.integration.replay.deployed import START_S, Deployed
from tests.support.background import running
from tests.support.spark_rows import session
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")

EVENTS_PER_S = 1_000


@contextmanager
def traffic(deployed: Deployed) -> Iterator[None]:
    """EVENTS_PER_S and their patches until the end of the block; all of them are in the log then."""
    events = changes(deployed.settings.partitions)

    def append(stop: threading.Event) -> None:
        began, sent = time.monotonic(), 0
        while not stop.wait(0.02):
            due = int((time.monotonic() - began) * EVENTS_PER_S)
            deployed.append([next(events) for _ in range(due - sent)])
            deployed.emit([busy_prices])
            sent = due

    with running(append):
        yield


def test_a_rebuild_ends_while_one_partition_gets_a_thousand_events_a_second(deployed: Deployed) -> None:
    rebuilder = deployed.rebuilder(session)
    deployed.generations.prepare()
    rebuilder.rebuild(busy_prices)
    with deployed.served([busy_prices]), traffic(deployed):
        eventually(lambda: len(deployed.sources) > EVENTS_PER_S, "traffic flows")
        before = len(deployed.sources)
        rebuilt = rebuilder.rebuild(busy_prices)
        during = len(deployed.sources) - before
        assert during > EVENTS_PER_S, "traffic stood still"
        assert rebuilt.events is not None
        assert before <= rebuilt.events <= rebuilt.offsets
    with deployed.served([busy_prices]):
        deployed.rows_become_the_references(busy_prices, START_S)
    assert {each.position.partition for each in deployed.sources} == {BUSY}
