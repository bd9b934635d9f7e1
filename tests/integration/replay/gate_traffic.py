"""Traffic for stream views over gates and carts in a deployment under test, and their rows in each store.

`gates` counts observations in windows, `entered` counts events; `carts` is in real-time mode.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final

import orjson

from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.envelope import decode, partition_of, timestamp_ms
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.eventlog.topics import VIEWS as VIEWS_TOPIC
from headwater.projections.stream.view import StreamView
from tests.integration.replay.deployed import Deployed
from tests.integration.replay.gates import entered, gates
from tests.support.carts import LATE_AFTER, Move, Moved, carts, is_in_order, versions_in_python
from tests.support.carts import rows_in_python as carts_in_python
from tests.support.gate_events import Entered, event_of
from tests.support.observed import REGISTRY, Passed, Report, rows_in_python
from tests.support.traffic import repeated

DAY = timedelta(days=1)
OF_GATES: Final = {Passed.type, *(Entered.history.type_of(version) for version in (1, Entered.version))}


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


@contextmanager
def observations_come(deployed: Deployed) -> Iterator[None]:
    """Likewise, of gates alone."""
    chance, numbers = random.Random(5), count(step=10)

    def append() -> None:
        number = next(numbers)
        record(deployed, range(number, number + 10), chance)

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
    """The reports of gates in the log; those of EVENTS were decided."""
    found: list[Report] = []
    for partition in range(deployed.settings.partitions):
        for each in deployed.log.read(topic, partition, 0):
            if not is_heartbeat_key(each.key):
                envelope = decode(each.value)
                if envelope.type not in OF_GATES:
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


def rows_become_python_s(deployed: Deployed) -> None:
    gates_become_pythons(deployed)
    expected = rows_in_python(recorded(deployed, EVENTS), DAY)
    for store in ("postgres", "valkey"):
        deployed.become(partial(rows, deployed, store, entered), expected, f"rows of entered in {store}")
    carts_become_pythons(deployed)


def gates_become_pythons(deployed: Deployed) -> None:
    expected = rows_in_python(recorded(deployed), DAY)
    for store in ("postgres", "valkey"):
        deployed.become(partial(rows, deployed, store), expected, f"rows of gates in {store}")
    deployed.become(partial(followed, deployed), expected, "rows of gates in their topic")


def has_rows_of_gates(deployed: Deployed) -> bool:
    """Fails if the process of stream views says that a query failed: waiting would not help."""
    said = (deployed.settings.state / "logs" / "projections-streams.log").read_text()
    assert " failed (" not in said, said
    return bool(rows(deployed, "postgres"))


def has_rows(deployed: Deployed) -> bool:
    """Of each view; see has_rows_of_gates."""
    return has_rows_of_gates(deployed) and bool(rows(deployed, "postgres", entered) and steps_in_topic(deployed))
