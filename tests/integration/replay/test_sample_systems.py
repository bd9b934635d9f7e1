"""The sample systems in a long run: all stream views live, while processes and servers are killed.

In the end the rows in each store are those that plain Python expects of what was sent, and those of a replay.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import psutil
import pytest

from headwater.compose.ports import free_ports
from headwater.compose.samples.sample import Deployment
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS
from headwater.projections.generations.registry.state_files import read_report
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.stream.view import StreamView
from headwater.replay.verify import DIFFERENT_EXIT
from tests.integration.replay.deployed import START_S, Deployed
from tests.integration.replay.sampled import SYSTEMS, System
from tests.support.background import running
from tests.support.checkpoints import disk
from tests.support.domains import SHIPPED
from tests.support.processes import kill
from tests.support.seeds import is_long, seed_of
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.complete,
    pytest.mark.servers,
    pytest.mark.jvm,
    pytest.mark.soak,
    pytest.mark.skipif(not is_long(), reason="takes ten minutes: `make soak` runs it"),
    pytest.mark.timeout(3_600),
]

TOGETHER: Final = {
    "places": ("buses", "sensors", "shop_floor", "ski_lifts"),
    "people": ("checkouts", "payments", "web"),
    "events": ("orders", "sales", "saved_searches"),
}
"""Systems that are one deployment. With "people" runs the write side, since alerts become commands."""
SERVERS: Final = ("kafka", "postgres", "elasticsearch", "valkey")
PROCESSES: Final = ("projections streams", "java", "load postgres", "load valkey", "load topic", "load elasticsearch")
EVERYTHING: Final = ("read side", "read side with its checkpoints", "read side and a checkpoint", "read side")
WRITE_SIDE: Final = "commands"
PAUSE_S: Final = (1.0, 15.0)
"""Between two faults."""
AWAY_S: Final = (0.0, 20.0)
"""How long the read side is down: so the next batch is small or large."""
SLICE_S: Final = 0.2
BEAT_S: Final = 5.0
MOST_DELAYED: Final = timedelta(seconds=100)
"""What is appended later than this after it was recorded may come behind Spark's watermark."""
RIGHT_S: Final = 600.0
ATTEMPTS: Final = 3


@pytest.fixture(scope="module")
def servers() -> Iterator[Stack]:
    """Servers of their own, which can be killed."""
    with own_folder() as folder, Stack(StackSettings(folder, free_ports())) as started:
        yield started


@pytest.fixture
def stack(servers: Stack) -> StackSettings:
    return servers.settings


@pytest.fixture(params=TOGETHER)
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = TOGETHER[request.param]
    return found


@pytest.fixture
def modules(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


class Traffic:
    """Appends the records of some systems when they are due. sent: what each system has sent. delayed: at most."""

    def __init__(self, deployed: Deployed, systems: Sequence[System], seed: int) -> None:
        self._deployed = deployed
        start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
        found = [(system, one) for system in systems for one in system.traffic(random.Random(seed), start)]
        self._left = sorted(found, key=lambda pair: pair[1].due)
        self.sent: dict[str, list[Any]] = {system.name: [] for system in systems}
        self.delayed = timedelta()

    def append_due(self) -> int:
        """Append what is due; returns its number."""
        now = datetime.now(UTC)
        number = sum(one.due <= now for _, one in self._left)
        due, self._left = self._left[:number], self._left[number:]
        for system, one in due:
            self._append(one.entry())
            self.sent[system.name].append(one.item)
        self._deployed.flush()
        return number

    def go_on(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        while not stop.wait(SLICE_S):
            before = self._left  # nothing is left of it after LONGEST
            if self.append_due():
                self.delayed = max(self.delayed, datetime.now(UTC) - before[0][1].due)

    def _append(self, entry: Entry) -> None:
        settings = self._deployed.settings
        stream = entry.key.rpartition("/")[0] if entry.topic == EVENTS else entry.key
        partition = partition_of(stream, settings.partitions)
        topic = settings.topic(entry.topic)
        self._deployed.producer.produce(topic, entry.value, entry.key, partition, timestamp=entry.timestamp_ms)


class Processes:
    """`headwater projections`, and `headwater handler` if rows become commands; started again when they end."""

    def __init__(self, deployed: Deployed, modules: Sequence[str]) -> None:
        self._deployed, self._modules = deployed, modules
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def runs(self, module: str) -> bool:
        """Whether this is one of them."""
        return module in self._modules

    def supervise(self) -> None:
        """Start those that do not run, as a supervisor would: one that finds no server at its start ends."""
        for module in self._modules:
            if module not in self._running or self._running[module].poll() is not None:
                self._running[module] = self._deployed.start(module)

    def kill(self, words: str) -> bool:
        """The processes below `headwater projections` whose command has these words; whether there were any."""
        found = []
        for child in psutil.Process(self._running["projections"].pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if words in " ".join(child.cmdline()):
                    found.append(child)
        for each in found[:1] if words == "java" else found:
            with suppress(psutil.NoSuchProcess):
                kill(each)
        return bool(found)

    def kill_all(self, *modules: str) -> None:
        """Whole programs with all that they have started; all of them without arguments."""
        for module in modules or tuple(self._running):
            process = self._running.pop(module)
            with suppress(psutil.NoSuchProcess):
                kill(psutil.Process(process.pid))
            process.wait(START_S)


class Faults:
    """Kills everything in turn, each in a random order, at random moments."""

    def __init__(
        self,
        chance: random.Random,
        deployed: Deployed,
        servers: Stack,
        processes: Processes,
        views: Sequence[StreamView],
    ) -> None:
        self._chance, self._deployed, self._servers, self._processes = chance, deployed, servers, processes
        self._with_state = [view for view in views if not view.realtime]
        self._kinds = [*SERVERS, *PROCESSES, *EVERYTHING, *([WRITE_SIDE] if processes.runs(WRITE_SIDE) else [])]

    def happen(self) -> None:
        """All of them, one after the other."""
        for kind in self._chance.sample(self._kinds, len(self._kinds)):
            time.sleep(self._chance.uniform(*PAUSE_S))
            self._processes.supervise()
            print(f"{datetime.now(UTC):%H:%M:%S} kill {kind}", flush=True)
            if kind in SERVERS:
                self._servers[kind].kill()
                self._servers[kind].wait_healthy()
            elif kind in PROCESSES:
                self._processes.kill(kind)
            elif kind == WRITE_SIDE:
                self._processes.kill_all(WRITE_SIDE)
            else:
                self._away(kind)

    def _away(self, kind: str) -> None:
        self._processes.kill_all("projections")
        time.sleep(self._chance.uniform(*AWAY_S))
        if "checkpoint" in kind:
            number = len(self._with_state) if kind.endswith("checkpoints") else 1
            for view in self._chance.sample(self._with_state, number):
                for generation in self._deployed.generations.of(view.name):
                    folder = disk(Checkpoint.of(self._deployed.settings, view.patch_tag(generation.generation)))
                    shutil.rmtree(folder, ignore_errors=True)
        self._processes.supervise()


def test_every_stream_view_of_the_samples_is_run() -> None:
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(SYSTEMS)
    views = {view.name for view in ViewRegistry.load(SHIPPED).of_kind(StreamView)}
    assert views - {"hourly_views"} == {view.name for system in SYSTEMS.values() for view in system.views}


def test_rows_are_python_s_and_those_of_a_replay_whatever_was_killed(
    deployed: Deployed, servers: Stack, names: tuple[str, ...]
) -> None:
    seed = seed_of(sum(map(ord, "".join(names))))
    systems = [SYSTEMS[name] for name in names]
    views = [view for system in systems for view in system.views]
    has_commands = "payments" in names
    at = Deployment(servers.endpoints, deployed.variables)
    owners = [] if has_commands else [partial(beat, deployed)]
    traffic = Traffic(deployed, systems, seed)
    assert traffic.append_due() > 0, "no history"
    processes = Processes(deployed, ["projections", *([WRITE_SIDE] if has_commands else [])])
    try:
        processes.supervise()
        with running(traffic.go_on, *owners):
            Faults(random.Random(seed), deployed, servers, processes, views).happen()
            processes.supervise()
            eventually(lambda: all_run(deployed, views), "all views make progress", RIGHT_S, every_s=2.0)
            code, _, complaint = deployed.replay("rebuild", *(view.name for view in views))
            assert code == 0, complaint
        assert traffic.delayed < MOST_DELAYED, "the servers were away for longer than this test allows for"
        with running(*owners):
            become_right(at, systems, traffic.sent)
            verify(deployed, views)
        show_state(deployed, views, traffic.sent)
    finally:
        processes.kill_all()


def beat(deployed: Deployed, stop: threading.Event) -> None:
    """What owners of `events` do, of which there are none without the write side."""
    while not stop.wait(BEAT_S):
        deployed.beat()


def all_run(deployed: Deployed, views: Sequence[StreamView]) -> bool:
    """While records come, a view is often a little behind."""
    code, found, _ = deployed.replay("status", *(view.name for view in views))
    return code == 0 and {lag["standing"] for lag in found} <= {"caught up", "behind"}


def become_right(at: Deployment, systems: Sequence[System], sent: dict[str, list[Any]]) -> None:
    """Wait until all rows are there that are final, which they are although nothing comes any more."""
    now = datetime.now(UTC)
    time.sleep(max(0.0, (max(system.due(sent[system.name], now) for system in systems) - now).total_seconds()))
    deadline = time.monotonic() + RIGHT_S
    while wrong := [text for system in systems for text in system.wrong(at, sent[system.name], datetime.now(UTC))]:
        assert time.monotonic() < deadline, "\n".join([f"{len(wrong)} differences", *wrong[:50]])
        time.sleep(1.0)


def verify(deployed: Deployed, views: Sequence[StreamView]) -> None:
    """A view that has just been held up may take more than the minute that `replay verify` waits for it."""
    names, complaints = [view.name for view in views], []
    for _ in range(ATTEMPTS):
        code, found, complaint = deployed.replay("verify", *names)
        if code == 0:
            return
        complaints.append(f"{code}: {found} {complaint[-2_000:]}")
        if code == DIFFERENT_EXIT:
            break
    pytest.fail("\n".join(complaints))


def show_state(deployed: Deployed, views: Sequence[StreamView], sent: dict[str, list[Any]]) -> None:
    """Print the state of each query; none has lost a row behind Spark's watermark."""
    print({name: len(items) for name, items in sent.items()})
    for view in (view for view in views if not view.realtime):
        (live,) = (generation for generation in deployed.generations.of(view.name) if generation.state == "live")
        report = read_report(deployed.settings, view.patch_tag(live.generation))
        assert report is not None
        print(f"{view.name}: {report.text()}")
        assert (report.lost, report.unreadable, report.failure) == (0, 0, ""), view.name
