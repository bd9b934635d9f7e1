"""Records of observations as Spark's Kafka source gives them, and a view over them that Python computes as well."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from pyspark.sql import Row

from headwater import INTEGER, TEXT, TIME, Cache, Observation, Postgres, StreamView, observations
from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.stream.view import late_view
from tests.support.spark_rows import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE_AFTER = timedelta(minutes=10)


class Passed(Observation, type="passed"):
    """Something passed a gate."""

    gate: str
    weight: int | None = None


class Closed(Observation, type="closed"):
    """A gate closed."""

    gate: str


class Weighed(Observation, type="weighed"):
    """Declares the weight as a text, and has fields with the names of columns of late views."""

    weight: str
    data: str
    late_s: str


REGISTRY = ObservationRegistry([("here", Passed), ("here", Closed)])


class Report(NamedTuple):
    """One report: observed at `time`, accepted at `recorded`; both in UTC."""

    number: int
    gate: str
    weight: int
    time: datetime
    recorded: datetime

    @property
    def lateness(self) -> timedelta:
        return self.recorded - self.time


def by_minute(passed: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        passed.groupBy("gate", f.window("time", "1 minute").alias("minutes"))
        .agg(f.count("*").alias("number"), f.sum("weight").alias("weight"))
        .select("gate", f.col("minutes.start").alias("minute"), "number", "weight")
    )


def gate_view(**changes: Any) -> StreamView:
    fields: dict[str, Any] = {
        "name": "gates",
        "key": ("gate", "minute"),
        "columns": {"gate": TEXT, "minute": TIME, "number": INTEGER, "weight": INTEGER},
        "sources": {"passed": observations(Passed, late_after="10m")},
        "query": by_minute,
        "stores": (Postgres(), Cache()),
    }
    return StreamView(**(fields | changes))


def kept(**changes: Any) -> StreamView:
    """The view of the late observations of `gate_view`."""
    found = late_view(gate_view(**{"late": "keep"} | changes))
    assert found is not None
    return found


def reports(seed: int, number: int) -> list[Report]:
    """Reports in the order of their acceptance, observed up to a quarter of an hour earlier: some are late."""
    chance = random.Random(seed)
    recorded = START
    found = []
    for each in range(number):
        recorded += timedelta(milliseconds=chance.choice((0, 1, 900, 30_000)))
        before = timedelta(milliseconds=chance.choice((0, 1, 5_000, 600_000, 600_001, chance.randrange(900_000))))
        found.append(Report(each, chance.choice("ab/%"), chance.randrange(9), recorded - before, recorded))
    return found


def rows_in_python(reported: Iterable[Report], admitted: timedelta) -> dict[str, tuple[int, int]]:
    """What `by_minute` makes of the reports that are not too late: number and weight by the row's key."""
    found: dict[str, tuple[int, int]] = {}
    for report in reported:
        if report.lateness > admitted:
            continue
        minute = report.time.replace(second=0, microsecond=0)
        gate = report.gate.replace("%", "%25").replace("/", "%2F")
        key = f"{gate}/{minute.strftime('%Y-%m-%dT%H:%M:%S')}.000Z"
        number, weight = found.get(key, (0, 0))
        found[key] = (number + 1, weight + report.weight)
    return found


def record_of(report: Report, partition: int = 0, offset: int = 0) -> Row:
    """The record that the API would have appended."""
    document = {
        "id": str(report.number),
        "source": f"s{report.number % 3}",
        "time": report.time.isoformat(),
        "data": {"gate": report.gate, "weight": report.weight},
    }
    entry = to_entry(REGISTRY.read("passed", orjson.dumps(document)), report.recorded, None, None)
    return raw(entry.key, entry.value, datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC), partition, offset)


def beat(time: datetime, partition: int = 0) -> Row:
    """A heartbeat at this time."""
    return raw(heartbeat_key(partition), b"{}", time, partition)


def raw(key: str, value: bytes | None, time: datetime = START, partition: int = 0, offset: int = 0) -> Row:
    topic = SETTINGS.topic(OBSERVATIONS)
    return Row(topic=topic, key=key.encode(), value=value, partition=partition, offset=offset, timestamp=time)


def compacted(records: Sequence[Row]) -> list[Row]:
    """The records that compaction leaves: the last one of each key."""
    last = {(record.topic, record.partition, record.key): record for record in records}
    return [record for record in records if last[record.topic, record.partition, record.key] is record]


def cut(found: Sequence[Row], chance: random.Random, parts: int) -> list[list[Row]]:
    """The rows in consecutive parts of random size; some may be empty."""
    at = sorted(chance.randrange(len(found) + 1) for _ in range(parts - 1))
    return [list(found[start:end]) for start, end in zip([0, *at], [*at, len(found)], strict=True)]
