"""Where each bus is, and how fast it went."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import asin, cos, radians, sin, sqrt
from typing import TYPE_CHECKING, Any, Final

from headwater import (
    FLOAT,
    INTEGER,
    POINT,
    TEXT,
    TIME,
    Cache,
    Elasticsearch,
    Postgres,
    StreamView,
    in_order,
    observations,
)

from .domain import BusLocated, BusStopped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


EARTH_M: Final = 6_371_000.0
COLUMNS = {"vehicle": TEXT, "start": TIME, "end": TIME, "metres": INTEGER, "kmh": FLOAT}


def from_place_to_place(located: DataFrame) -> DataFrame:
    """A row per two reports of a bus that follow each other, at most 10 minutes apart."""
    return in_order(located, key="vehicle", step=leg, columns=COLUMNS, forget_after="10m")


def leg(before: Any, now: Any) -> tuple[Any, list[dict[str, Any]]]:
    """before: the time in milliseconds since 1970, and the place."""
    at_ms = round(now.time.timestamp() * 1_000)
    here = [at_ms, now.latitude, now.longitude]
    if before is None or before[0] == at_ms:
        return before or here, []
    metres = distance_m(before[1], before[2], now.latitude, now.longitude)
    start, seconds = datetime.fromtimestamp(before[0] / 1_000, UTC), (at_ms - before[0]) / 1_000
    row = {"vehicle": now.vehicle, "start": start, "end": now.time, "metres": round(metres)}
    return here, [{**row, "kmh": round(metres / seconds * 3.6, 1)}]


def distance_m(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """The distance of two places, by the haversine formula."""
    here, there = radians(latitude), radians(other_latitude)
    half = sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(radians(other_longitude - longitude) / 2) ** 2
    return 2 * EARTH_M * asin(sqrt(half))


bus_legs = StreamView(
    name="bus_legs",
    key=("vehicle", "start"),
    columns=COLUMNS,
    sources={"located": observations(BusLocated, late_after="1m")},
    final=True,
    every="30s",
    stores=(Postgres(indexes=(("start", "kmh"),)), Cache()),
    query=from_place_to_place,
    doc="the speed of each bus between two reports of its place",
)

STOPS: Final[Mapping[str, Mapping[str, int]]] = {
    "7": {"Depot": 0, "Market": 180, "Station": 420, "Hospital": 600},
    "18": {"Station": 0, "University": 240, "Lake": 540},
}
"""The stops of each line, with the seconds from the beginning of a trip that are planned for them."""


def last_of_each(reports: DataFrame) -> DataFrame:
    """A row per bus; of reports with the same time, the one with the highest id counts."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    located = f.when(f.col("type") == "bus_located", f.struct("time", "id", "latitude", "longitude"))
    stopped = f.when(f.col("type") == "bus_stopped", f.struct("time", "id", "line", "stop", "departed_s"))
    place = f.struct(f.col("located.latitude").alias("lat"), f.col("located.longitude").alias("lon"))
    return (
        reports.groupBy("vehicle")
        .agg(f.max(located).alias("located"), f.max(stopped).alias("stopped"))
        .select(
            "vehicle",
            f.col("located.time").alias("located_at"),
            f.when(f.col("located").isNotNull(), place).alias("place"),
            f.col("stopped.line").alias("line"),
            f.col("stopped.stop").alias("stop"),
            (f.col("stopped.departed_s") - _planned_s()).alias("delay_s"),
        )
    )


def _planned_s() -> Column:
    """The planned seconds of the last stop; null if the line does not stop there."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    planned = {(line, stop): seconds for line, stops in STOPS.items() for stop, seconds in stops.items()}
    planned_s = f.lit(None).cast("bigint")
    for (line, stop), seconds in planned.items():
        is_here = (f.col("stopped.line") == line) & (f.col("stopped.stop") == stop)
        planned_s = f.when(is_here, f.lit(seconds)).otherwise(planned_s)
    return planned_s


bus_positions = StreamView(
    name="bus_positions",
    key="vehicle",
    columns={
        "vehicle": TEXT,
        "located_at": TIME,
        "place": POINT,
        "line": TEXT,
        "stop": TEXT,
        "delay_s": INTEGER,
    },
    sources={"reports": observations(BusLocated, BusStopped, late_after="10m")},
    every="30s",
    stores=(Elasticsearch(facets=("line", "stop")), Postgres(indexes=(("line", "delay_s"),)), Cache()),
    query=last_of_each,
    doc="the last place of each bus, and its delay at the last stop",
)
