"""The real read side, killed piece by piece, and real rebuilds, while events keep coming."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psutil
import pytest

from compose.ports import free_ports_in_a_row
from projections.running_parts import EVERYTHING, LIVE, ready_file
from projections.table.view import TableView
from tests.integration.replay.deployed import START_S, Deployed
from tests.integration.replay.things import by_group, by_thing, things
from tests.support.processes import kill
from tests.support.scraped import scraped
from tests.support.waiting import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(3_600), pytest.mark.xdist_group("a whole read side")]

MANY = 500
"""Events of the traffic."""
FRESH_S = 60.0
"""Long enough for a busy machine; a view that is not kept up to date grows older without end."""


@contextmanager
def projections(deployed: Deployed) -> Iterator[subprocess.Popen[bytes]]:
    """`headwater projections`, once its live query takes in events; must end cleanly when told to."""
    process = deployed.start("projections")
    try:
        ready = ready_file(deployed.settings, EVERYTHING)
        deployed.eventually(lambda: process.poll() is not None or ready.exists(), "all is up", START_S)
        assert process.poll() is None, deployed.output("projections")
        yield process
        process.terminate()
        assert deployed.ended(process) == 0, deployed.output("projections")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def part(supervisor: subprocess.Popen[bytes], *words: str) -> psutil.Process:
    """The supervised process `headwater projections WORDS…`, once it runs: it may be starting again."""

    def found() -> psutil.Process | None:
        for each in psutil.Process(supervisor.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # or a zombie, its subclass
                if tuple(each.cmdline()[-len(words) :]) == words:
                    return each
        return None

    process = eventually(found, f"a process {words}")
    assert process is not None
    return process


KILLED = ("live", "load-postgres", "load-elasticsearch", "load-valkey")
PARTS = ("live", "streams", *KILLED[1:])
"""In the order of their ports."""


def are_fresh(port: int) -> bool:
    """Whether both views are at most some seconds old in each store, by what Prometheus reads."""
    times = scraped(port, "headwater_view_applied_timestamp_seconds")
    places = {(dict(labels)["view"], dict(labels)["store"]) for labels in times}
    wanted = {(view.name, store.name) for view in (by_thing, by_group) for store in view.stores}
    return wanted <= places and time.time() - min(times.values()) < FRESH_S


def loader_counts(port: int, views: Sequence[TableView]) -> bool:
    """Whether a loader says that it has loaded rows of each view."""
    rows = scraped(port, "headwater_loader_rows_total")
    loaded = {dict(labels)["view"] for labels, number in rows.items() if number > 0}
    patches = sum(scraped(port, "headwater_loader_patches_total").values())
    return patches > 0 and {view.name for view in views} <= loaded


def test_views_equal_the_reference_after_rebuilds_under_traffic_and_kills_of_every_part(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, events = (by_thing, by_group), iter(things(20_000, seed=3))
    port = free_ports_in_a_row(1 + len(PARTS))
    monkeypatch.setenv("HEADWATER_METRICS_PORT", str(port))
    with projections(deployed) as supervisor:
        live = ready_file(deployed.settings, LIVE)
        with deployed.traffic(events):
            eventually(lambda: len(deployed.sources) > MANY // 10, "traffic flows")
            # a rebuild while every loader dies; the live query dies after it
            with ThreadPoolExecutor(1) as other_thread:
                rebuild = other_thread.submit(deployed.replay, "rebuild", "by_group")
                for name in ("postgres", "elasticsearch", "valkey"):
                    kill(part(supervisor, "load", name))
            code, _, complaint = rebuild.result()
            assert code == 0, complaint
            live.unlink(missing_ok=True)
            kill(part(supervisor, "live"))
            deployed.eventually(live.exists, "the live query is up", START_S)
            eventually(lambda: len(deployed.sources) > MANY, "traffic goes on")
        deployed.beat()
        for view in views:
            deployed.rows_become_the_references(view)

        def is_fresh() -> bool:
            deployed.beat()
            return are_fresh(port)

        deployed.eventually(is_fresh, "the metrics say that the views are fresh", every_s=1.0)
        all_up = {(("part", part),): 1 for part in PARTS}
        eventually(lambda: scraped(port, "headwater_part_up") == all_up, "the metrics say that all parts are up")
        restarts = scraped(port, "headwater_part_restarts_total")
        assert all(restarts[(("part", part),)] >= 1 for part in KILLED)
        loader = port + 1 + PARTS.index("load-postgres")

        def is_counted() -> bool:
            # it counts no more what it has loaded before it was killed
            deployed.append([next(events) for _ in range(5)])
            return loader_counts(loader, views)

        deployed.eventually(is_counted, "the metrics say what was loaded", every_s=1.0)
        assert scraped(port, "headwater_rebuild_total") == scraped(port, "headwater_dead_letters") == {}
        assert [each.state for each in deployed.generations.of("by_group")] == ["retired", "live"]
