"""Views whose rows expire, as operators see them: compared, rebuilt and mended, before and after rows were removed."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from headwater.commands.testing.past import at
from headwater.projections.generations.upkeep.expired_rows import remove_rows
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.projections.testing.rows import sources_of
from tests.integration.replay.deployed import Command, Deployed
from tests.support.expiring import Seen, days, sessions

AGES = (0, 1, 28, 31, 40, 40, 90)
"""In days; none expires if the test begins before midnight and ends after it."""


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.support.expiring",)


def stored(deployed: Deployed, store: str, generation: int) -> set[str]:
    return {key for key, _ in open_reader(store, deployed.stores).rows(Target(days, generation))}


@pytest.mark.complete
def test_verify_row_and_rebuild_know_what_was_removed(deployed: Deployed, replay: Command) -> None:
    deployed.generations.prepare()
    now = datetime.now(UTC)
    times = [now - timedelta(days=age) for age in sorted(AGES, reverse=True)]
    seen = [at(time, Seen(session_id=f"s{number}", user="ada", day=time.date())) for number, time in enumerate(times)]
    deployed.append(sources_of([days, sessions], seen))
    deployed.emit([days, sessions])
    for view in ("days", "sessions"):
        told = replay("rebuild", view)
        assert told.code == 0, told.complaint
    keys = {f"ada/{time.date()}" for time in times}
    last_day = now.date() - timedelta(days=31)
    left = {key for key in keys if key > f"ada/{last_day}"}

    with deployed.served([days, sessions]):
        for removed in (False, True):
            told = replay("verify", "days", "sessions")
            assert told.code == 0, told.complaint
            whole = {view["view"]: {store["rows"] for store in view["stores"]} for view in told.document["views"]}
            assert whole == {"days": {3}, "sessions": {len(AGES)}}, "what expired for good is not compared"
            if not removed:
                assert remove_rows(deployed.stores, Target(days, 1), last_day, threading.Event()) == len(keys - left)
            assert all(stored(deployed, store, 1) == left for store in deployed.servers)
        gone = f"ada/{times[0].date()}"
        told = replay("row", "days", gone, "--write")
        assert (told.code, {store["outcome"] for store in told.document["stores"]}) == (0, {"equal"})
        assert all(stored(deployed, store, 1) == left for store in deployed.servers)

    assert replay("rebuild", "days").code == 0
    generation = deployed.generations.live()["days"].generation
    assert stored(deployed, "valkey", generation) == keys, "until the read side looks again"
    assert remove_rows(deployed.stores, Target(days, generation), last_day, threading.Event()) == len(keys - left)
    assert all(stored(deployed, store, generation) == left for store in deployed.servers)
