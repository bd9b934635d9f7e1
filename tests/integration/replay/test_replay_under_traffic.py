"""The real read side, killed piece by piece, and real rebuilds, while events and observations keep coming.

One read side for all tests: each has views of its own on it, and kills what the others need not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from subprocess import Popen

import pytest

from headwater.compose.ports import free_ports_in_a_row
from headwater.compose.settings import StackSettings
from headwater.projections.running_parts import LIVE, ready_file
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from tests.integration.replay.deployed import START_S, Command, Deployed, deployment
from tests.integration.replay.followed import followed, per_due
from tests.integration.replay.followed_rows import (
    append,
    delete_a_row,
    rows_become_the_references,
    rows_over_views_become_the_references,
    told,
)
from tests.integration.replay.gate_traffic import (
    gates_become_pythons,
    has_rows_of_gates,
    observations_come,
    record,
    recorded,
)
from tests.integration.replay.gates import gates
from tests.integration.replay.read_side import part, projections
from tests.integration.replay.things import by_group, things
from tests.support.processes import kill
from tests.support.scraped import scraped
from tests.support.waiting import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(3_600), pytest.mark.xdist_group("a whole read side")]

MODULES = ("tests.integration.replay.read_side_views",)
VIEWS = (by_group, followed)
MANY = 500
"""Events of the traffic."""
MANY_MORE = 1_000
"""At most: the next test needs some, however long this one takes."""
FRESH_S = 60.0
"""Long enough for a busy machine; a view that is not kept up to date grows older without end."""
KILLED = ("live", "load-postgres", "load-elasticsearch", "load-valkey")
PARTS = ("live", "streams", *KILLED[1:], "load-topic")
"""In the order of their ports."""


@dataclass
class ReadSide:
    """What runs. port: the first one of its metrics. events: those to append, in the order of their times."""

    deployed: Deployed
    supervisor: Popen[bytes]
    port: int
    events: Iterator[Source]


@pytest.fixture(scope="module")
def read_side(stack: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadSide]:
    port = free_ports_in_a_row(1 + len(PARTS))
    folder = tmp_path_factory.mktemp("read_side")
    with deployment(stack, folder, MODULES) as started, pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADWATER_METRICS_PORT", str(port))
        with projections(started) as supervisor:
            environment.undo()  # what else is started has no metrics at that port
            yield ReadSide(started, supervisor, port, iter(things(4 * MANY_MORE)))


@pytest.fixture
def deployed(read_side: ReadSide) -> Deployed:
    return read_side.deployed


def kill_loaders(read_side: ReadSide, *stores: str) -> None:
    for store in stores:
        kill(part(read_side.supervisor, "load", store))


def are_fresh(port: int) -> bool:
    """Whether the views of folded events are at most some seconds old in each store, by what Prometheus reads."""
    times = scraped(port, "headwater_view_applied_timestamp_seconds")
    wanted = {(view.name, store.name) for view in VIEWS for store in view.stores}
    found = {(dict(labels)["view"], dict(labels)["store"]): at for labels, at in times.items()}
    return wanted <= found.keys() and time.time() - min(found[each] for each in wanted) < FRESH_S


def loader_counts(port: int, views: Sequence[TableView]) -> bool:
    """Whether a loader says that it has loaded rows of each view."""
    rows = scraped(port, "headwater_loader_rows_total")
    loaded = {dict(labels)["view"] for labels, number in rows.items() if number > 0}
    patches = sum(scraped(port, "headwater_loader_patches_total").values())
    return patches > 0 and {view.name for view in views} <= loaded


@pytest.mark.usefixtures("spark")
def test_views_equal_the_reference_after_rebuilds_under_traffic_and_kills_of_every_part(
    read_side: ReadSide, replay: Command
) -> None:
    deployed, port, events = read_side.deployed, read_side.port, read_side.events
    live = ready_file(deployed.settings, LIVE)
    before = len(deployed.sources)
    with deployed.traffic(islice(events, MANY_MORE)):
        eventually(lambda: len(deployed.sources) > before + MANY // 10, "traffic flows")
        # a rebuild while every loader dies; the live query dies after it
        with ThreadPoolExecutor(1) as other_thread:
            kills = other_thread.submit(kill_loaders, read_side, "postgres", "elasticsearch", "valkey")
            rebuilt = replay("rebuild", "by_group", "--engine", "spark")
        assert rebuilt.code == 0, rebuilt.complaint
        kills.result()
        live.unlink(missing_ok=True)
        kill(part(read_side.supervisor, "live"))
        deployed.eventually(live.exists, "the live query is up", START_S)
        eventually(lambda: len(deployed.sources) > before + MANY, "traffic goes on")
    deployed.beat()
    deployed.rows_become_the_references(by_group)
    rows_become_the_references(deployed, followed)

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
        append(deployed, events, 5)
        return loader_counts(loader, VIEWS)

    deployed.eventually(is_counted, "the metrics say what was loaded", every_s=1.0)
    by_itself = {dict(labels).get("view") for labels in scraped(port, "headwater_rebuild_total")}
    assert not {view.name for view in VIEWS} & by_itself
    assert scraped(port, "headwater_dead_letters") == {}
    assert [generation.state for generation in deployed.generations.of("by_group")] == ["retired", "live"]


@pytest.mark.usefixtures("spark")
def test_rows_of_a_stream_view_are_pythons_after_kills_a_rebuild_under_traffic_and_a_rollback(
    read_side: ReadSide, replay: Command
) -> None:
    deployed = read_side.deployed
    with observations_come(deployed):
        deployed.eventually(lambda: has_rows_of_gates(deployed), "the first rows", START_S)
        kill(part(read_side.supervisor, "headwater.projections", "streams"))
        kill_loaders(read_side, "topic")
        rebuilt = replay("rebuild", gates.name)
        assert rebuilt.code == 0, rebuilt.complaint
        (view,) = rebuilt.document["views"]
        assert view["events"] > 0
        assert view["rows"] is None
        killed_at = len(recorded(deployed))
        eventually(lambda: len(recorded(deployed)) > killed_at + 100, "traffic goes on")
    gates_become_pythons(deployed)
    assert [generation.state for generation in deployed.generations.of(gates.name)] == ["retired", "live"]
    rolled_back = replay("rollback", gates.name)
    assert rolled_back.code == 0, rolled_back.complaint
    record(deployed, range(1_000_000, 1_000_050), random.Random(1))
    gates_become_pythons(deployed)
    assert [generation.state for generation in deployed.generations.of(gates.name)] == ["live", "retired"]


@pytest.mark.complete
def test_a_topic_and_views_over_its_rows_are_right_after_a_kill_a_rebuild_and_a_rollback(
    read_side: ReadSide, replay: Command
) -> None:
    deployed, events = read_side.deployed, read_side.events
    append(deployed, events, 100)
    with deployed.traffic(islice(events, MANY_MORE)):
        with ThreadPoolExecutor(1) as other_thread:
            rebuild = other_thread.submit(deployed.replay, "rebuild", followed.name)
            kill_loaders(read_side, "topic")
        code, _, complaint = rebuild.result()
        assert code == 0, complaint
    rows_become_the_references(deployed, followed)  # so the row that is deleted now was there
    deleted = delete_a_row(deployed, events)
    rows_become_the_references(deployed, followed)
    assert told(deployed, followed)[deleted][-1] is None
    rows_over_views_become_the_references(deployed, followed, [per_due])
    rolled_back = replay("rollback", followed.name)
    assert rolled_back.code == 0, rolled_back.complaint
    assert [generation.state for generation in deployed.generations.of(followed.name)] == ["live", "retired"]
    append(deployed, events, 50)
    rows_become_the_references(deployed, followed)
    rows_over_views_become_the_references(deployed, followed, [per_due])
