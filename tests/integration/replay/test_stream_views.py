"""Stream views in a real read side: killed, rebuilt while observations come, verified, and gone back.

`gates` counts observations in windows, `entered` counts events one by one; `carts` is in real-time mode.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import orjson
import pytest

from commands.sending.recorder import ObservationRecorder
from eventlog.envelope import decode, partition_of, timestamp_ms
from eventlog.heartbeats import is_heartbeat_key
from eventlog.topics import EVENTS, OBSERVATIONS
from eventlog.topics import VIEWS as VIEWS_TOPIC
from projections.spark.stream_queries.checkpoint import Checkpoint
from projections.stream.declaring.view import StreamView
from tests.integration.replay.deployed import START_S, Command, Deployed
from tests.integration.replay.gates import entered, gates
from tests.integration.replay.test_replay_under_traffic import part, projections
from tests.support.carts import LATE_AFTER, Move, Moved, carts, is_in_order, versions_in_python
from tests.support.carts import rows_in_python as carts_in_python
from tests.support.collector import Collector, collecting
from tests.support.gate_events import event_of
from tests.support.observed import REGISTRY, Report, rows_in_python
from tests.support.processes import kill
from tests.support.seeds import is_long
from tests.support.traffic import repeated
from tests.support.waiting import Latest, eventually

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(3_600), pytest.mark.xdist_group("a whole read side")]

DAY = timedelta(days=1)
VIEWS = (gates.name, entered.name, carts.name)
REBUILT = VIEWS if is_long() else (entered.name, carts.name)
VERIFIED = (gates.name, carts.name) if is_long() else (gates.name,)
ROLLED_BACK = (entered.name, carts.name) if is_long() else (entered.name,)
"""A long run does all of it with a view in batches and with the one in real-time mode; each takes Spark minutes."""


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.integration.replay.gates", "tests.support.carts")


@contextmanager
def traffic(deployed: Deployed) -> Iterator[None]:
    """Observations and events at a steady rate until the end of the block, some of them late."""
    chance, numbers = random.Random(5), count(step=10)

    def append() -> None:
        number = next(numbers)
        record(deployed, range(number, number + 10), chance)
        decide(deployed, range(number, number + 10), chance)
        move(deployed, range(number, number + 10), chance)

    with repeated(append, 0.25):
        yield


def record(deployed: Deployed, numbers: range, chance: random.Random) -> None:
    """What the API does with one request."""
    now, reports = datetime.now(UTC), []
    for number in numbers:
        before = chance.choice((0, 1, 60, 590, 700, 3_600))
        document = {
            "id": str(number),
            "source": f"s{number % 5}",
            "time": (now - timedelta(seconds=before)).isoformat(),
            "data": {"gate": chance.choice("ab"), "weight": chance.randrange(9)},
        }
        reports.append(REGISTRY.read("passed", orjson.dumps(document)))
    asyncio.run(ObservationRecorder(deployed.log).record(reports))


def decide(deployed: Deployed, numbers: range, chance: random.Random) -> None:
    """What a handler does with commands, some of which have waited for long; it appends no heartbeats."""
    now, topic = datetime.now(UTC), deployed.settings.topic(EVENTS)
    for number in numbers:
        accepted = now - timedelta(seconds=chance.choice((0, 1, 60, 590, 700, 3_600)))
        row = event_of(Report(number, chance.choice("ab"), chance.randrange(9), accepted, now))
        partition = partition_of(f"gate/{number}", deployed.settings.partitions)
        deployed.producer.produce(topic, row.value, row.key, partition, timestamp=timestamp_ms(accepted))
    deployed.flush()


def move(deployed: Deployed, steps: range, chance: random.Random) -> None:
    """Reports of a few carts: most replace rows of earlier ones."""
    lateness = (timedelta(), timedelta(), LATE_AFTER * 2)
    moves = [
        Move(chance.choice("12345"), chance.choice("aabc"), step, chance.randrange(3), chance.choice(lateness))
        for step in steps
    ]
    asyncio.run(ObservationRecorder(deployed.log).record([each.report() for each in moves]))


def recorded(deployed: Deployed, topic: str = OBSERVATIONS) -> list[Report]:
    """The reports in the log; those of EVENTS were decided."""
    found: list[Report] = []
    for partition in range(deployed.settings.partitions):
        for each in deployed.log.read(topic, partition, 0):
            if not is_heartbeat_key(each.key):
                envelope = decode(each.value)
                if envelope.type == Moved.type:
                    continue
                assert envelope.recorded_time is not None
                time = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
                data = envelope.data
                weight = data["weight"] if "weight" in data else data["load"]
                found.append(Report(len(found), data["gate"], weight, time, envelope.recorded_time))
    return found


def all_moves(deployed: Deployed) -> list[Move]:
    """Those in the log, in the order of each partition."""
    found: list[Move] = []
    for partition in range(deployed.settings.partitions):
        for each in deployed.log.read(OBSERVATIONS, partition, 0):
            if is_heartbeat_key(each.key) or (envelope := decode(each.value)).type != Moved.type:
                continue
            assert envelope.recorded_time is not None
            late = envelope.recorded_time - datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
            found.append(Move(envelope.id.rpartition("/")[2], late=late, **envelope.data))
    return found


def rows(deployed: Deployed, store: str, view: StreamView = gates) -> dict[str, tuple[int, int]]:
    return {key: (row["number"], row["weight"]) for key, row in deployed.servers[store].rows(view).items()}


def followed(deployed: Deployed) -> dict[str, tuple[int, int]]:
    """The rows of `gates` as a program has them that follows their topic."""
    last = {key: rows[-1] for key, rows in told(deployed, gates).items()}
    return {key: (row["number"], row["weight"]) for key, row in last.items() if row is not None}


def told(deployed: Deployed, view: StreamView) -> dict[str, list[Any]]:
    """All that a program sees that follows a topic: the rows of each key, in their order (None: it is deleted)."""
    found: dict[str, list[Any]] = {}
    for partition in range(deployed.settings.patch_partitions):
        for record in deployed.log.read(f"{VIEWS_TOPIC}{view.name}", partition, 0):
            row = None if record.value is None else decode(record.value).data
            found.setdefault(record.key, []).append(row)
    return found


def steps_in_topic(deployed: Deployed) -> dict[str, list[int | None]]:
    return {key: [row and row["step"] for row in rows] for key, rows in told(deployed, carts).items()}


def carts_become_pythons(deployed: Deployed) -> None:
    """And nobody who follows their topic has seen an earlier row after a later one."""
    moves = all_moves(deployed)
    expected, versions = carts_in_python(moves), versions_in_python(moves)

    def stored(store: str) -> dict[str, Any]:
        return {key: row["step"] for key, row in deployed.servers[store].rows(carts).items()}

    def in_topic() -> dict[str, Any]:
        last = {key: steps[-1] for key, steps in steps_in_topic(deployed).items()}
        return {key: step for key, step in last.items() if step is not None}

    for store in ("postgres", "valkey"):
        deployed.become(partial(stored, store), expected, f"rows of carts in {store}")
    deployed.become(in_topic, expected, "rows of carts in their topic")
    for key, steps in steps_in_topic(deployed).items():
        assert is_in_order(steps, versions[key]), (key, steps)


def has_rows(deployed: Deployed) -> bool:
    """Fails if the process of stream views says that a query failed: waiting would not help."""
    said = (deployed.settings.state / "logs" / "projections-streams.log").read_text()
    assert " failed (" not in said, said
    found = (rows(deployed, "postgres"), rows(deployed, "postgres", entered), steps_in_topic(deployed))
    return all(map(bool, found))


def rows_become_python_s(deployed: Deployed) -> None:
    for view, topic in ((gates, OBSERVATIONS), (entered, EVENTS)):
        expected = rows_in_python(recorded(deployed, topic), DAY)

        for store in ("postgres", "valkey"):
            deployed.become(partial(rows, deployed, store, view), expected, f"rows of {view.name} in {store}")
    expected = rows_in_python(recorded(deployed), DAY)
    deployed.become(partial(followed, deployed), expected, "rows of gates in their topic")
    carts_become_pythons(deployed)


def standings(replay: Command) -> set[str]:
    return {each["standing"] for each in replay("status", *VIEWS).document or ()}


def batch_is_traced_into_each_store(collector: Collector) -> None:
    """A batch of `gates` begins a trace, which the loaders of its stores continue."""

    def stores() -> dict[str, set[str]]:
        batches = {each.trace: each.id for each in list(collector.spans) if each.name == "batch gates"}
        found: dict[str, set[str]] = {batch: set() for batch in batches.values()}
        for each in list(collector.spans):
            if each.name == "load gates" and each.parent == batches.get(each.trace):
                assert each.service == f"headwater-load-{each.facts['headwater.store']}"
                found[each.parent].add(str(each.facts["headwater.store"]))
        return found

    expected = {store.name for store in gates.stores}
    eventually(lambda: expected in stores().values(), Latest(lambda: f"{expected} in {stores()}"))
    batches = [each for each in list(collector.spans) if each.name == "batch gates"]
    assert {(each.parent, each.service) for each in batches} == {("", "headwater-streams")}
    assert sum(each.facts["headwater.records"] for each in batches) > 0


@pytest.mark.soak
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
            kill(part(supervisor, "projections", "streams"))
            kill(part(supervisor, "load", "topic"))
            rebuilt = replay("rebuild", *REBUILT)
            assert rebuilt.code == 0, rebuilt.complaint
            *in_batches, at_once = rebuilt.document["views"]
            assert in_batches
            assert all(each["events"] > 0 and each["rows"] is None for each in in_batches)
            assert at_once["events"] is None
            assert at_once["offsets"] > 0 < at_once["rows"]
            killed_at = len(recorded(deployed))
            eventually(lambda: len(recorded(deployed)) > killed_at + 100, "traffic goes on")
        rows_become_python_s(deployed)
        verified = replay("verify", *VERIFIED)
        assert verified.code == 0, verified.complaint or verified.document
        for name in REBUILT:
            assert [each.state for each in deployed.generations.of(name)] == ["retired", "live"]
        rolled_back = replay("rollback", *ROLLED_BACK)
        assert rolled_back.code == 0, rolled_back.complaint
        record(deployed, range(1_000_000, 1_000_050), random.Random(1))
        decide(deployed, range(1_000_000, 1_000_050), random.Random(1))
        move(deployed, range(1_000_000, 1_000_050), random.Random(1))
        rows_become_python_s(deployed)
        for name in REBUILT:
            now = ["live", "retired"] if name in ROLLED_BACK else ["retired", "live"]
            assert [each.state for each in deployed.generations.of(name)] == now
        # a view without batches is caught up with the next heartbeat
        deployed.eventually(lambda: standings(replay) == {"caught up"}, "all views are caught up")
    tags = [gates.patch_tag(1), entered.patch_tag(1), entered.patch_tag(2)]
    assert all(Checkpoint.of(deployed.settings, tag).exists for tag in tags)
