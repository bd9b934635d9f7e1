"""Stream views in a real read side: killed, rebuilt while observations come, verified, and gone back."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import orjson
import pytest

from commands.sending.recorder import ObservationRecorder
from eventlog.envelope import decode, partition_of, timestamp_ms
from eventlog.heartbeats import is_heartbeat_key
from eventlog.topics import EVENTS, OBSERVATIONS
from eventlog.topics import VIEWS as VIEWS_TOPIC
from projections.spark.streams.checkpoint import Checkpoint
from projections.stream.view import StreamView
from tests.background import running
from tests.gate_events import event_of
from tests.integration.replay.deployed import BOUND_S, START_S, Deployed
from tests.integration.replay.gates import entered, gates, stepped
from tests.integration.replay.test_replay_under_traffic import kill, part, projections
from tests.observed import REGISTRY, Report, rows_in_python
from tests.waiting import eventually

DAY = timedelta(days=1)
VIEWS = (gates.name, entered.name, stepped.name)


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.integration.replay.gates",)


@contextmanager
def traffic(deployed: Deployed) -> Iterator[None]:
    """Observations and events at a steady rate until the end of the block, some of them late."""
    chance = random.Random(5)

    def append(stop: threading.Event) -> None:
        number = 0
        while not stop.wait(0.1):
            record(deployed, range(number, number + 10), chance)
            decide(deployed, range(number, number + 10), chance)
            number += 10

    with running(append):
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
    deployed.producer.flush(BOUND_S)


def recorded(deployed: Deployed, topic: str = OBSERVATIONS) -> list[Report]:
    """The reports in the log; those of EVENTS were decided."""
    found: list[Report] = []
    for partition in range(deployed.settings.partitions):
        for each in deployed.log.read(topic, partition, 0):
            if not is_heartbeat_key(each.key):
                envelope = decode(each.value)
                assert envelope.recorded_time is not None
                time = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC)
                data = envelope.data
                weight = data["weight"] if "weight" in data else data["load"]
                found.append(Report(len(found), data["gate"], weight, time, envelope.recorded_time))
    return found


def rows(deployed: Deployed, store: str, view: StreamView = gates) -> dict[str, tuple[int, int]]:
    return {key: (row["number"], row["weight"]) for key, row in deployed.servers[store].rows(view).items()}


def followed(deployed: Deployed) -> dict[str, tuple[int, int]]:
    """The rows of `gates` as a program has them that follows their topic."""
    records = [
        record
        for partition in range(deployed.settings.patch_partitions)
        for record in deployed.log.read(f"{VIEWS_TOPIC}{gates.name}", partition, 0)
    ]
    last = {record.key: record.value for record in records}
    found = {key: decode(value).data for key, value in last.items() if value is not None}
    return {key: (row["number"], row["weight"]) for key, row in found.items()}


def has_rows(deployed: Deployed) -> bool:
    """Fails if the process of stream views says that a query failed: waiting would not help."""
    said = (deployed.settings.state / "logs" / "projections-streams.log").read_text()
    assert " failed (" not in said, said
    return bool(rows(deployed, "postgres")) and bool(rows(deployed, "postgres", entered))


def rows_become_python_s(deployed: Deployed) -> None:
    for view, topic in ((gates, OBSERVATIONS), (stepped, OBSERVATIONS), (entered, EVENTS)):
        expected = rows_in_python(recorded(deployed, topic), DAY)

        def same(store: str, view: StreamView = view, expected: object = expected) -> bool:
            return rows(deployed, store, view) == expected

        for store in ("postgres", "valkey"):
            eventually(partial(same, store), f"rows of {view.name} in {store}", BOUND_S)
    expected = rows_in_python(recorded(deployed), DAY)
    eventually(lambda: followed(deployed) == expected, "rows of gates in their topic", BOUND_S)


def test_rows_are_those_that_python_computes_after_a_kill_and_a_rebuild_under_traffic(deployed: Deployed) -> None:
    with projections(deployed) as supervisor:
        with traffic(deployed):
            eventually(lambda: has_rows(deployed), "the first rows", START_S)
            kill(part(supervisor, "projections", "streams"))
            code, rebuilt, complaint = deployed.replay("rebuild", *VIEWS)
            assert code == 0, complaint
            assert [(each["events"] > 0, each["rows"]) for each in rebuilt["views"]] == [(True, None)] * 3
            killed_at = len(recorded(deployed))
            eventually(lambda: len(recorded(deployed)) > killed_at + 100)
        rows_become_python_s(deployed)
        code, verified, complaint = deployed.replay("verify", *VIEWS)
        assert code == 0, complaint or verified
        assert [each.state for name in VIEWS for each in deployed.generations.of(name)] == ["retired", "live"] * 3
        code, _, complaint = deployed.replay("rollback", *VIEWS)
        assert code == 0, complaint
        record(deployed, range(1_000_000, 1_000_050), random.Random(1))
        decide(deployed, range(1_000_000, 1_000_050), random.Random(1))
        rows_become_python_s(deployed)
        assert [each.state for name in VIEWS for each in deployed.generations.of(name)] == ["live", "retired"] * 3
        code, found, _ = deployed.replay("status", *VIEWS)
        assert (code, {each["standing"] for each in found}) == (0, {"caught up"})
    tags = [view.patch_tag(number) for view in (gates, entered, stepped) for number in (1, 2)]
    assert all(Checkpoint.of(deployed.settings, tag).exists for tag in tags)
