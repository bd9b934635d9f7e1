"""How fast each bus went from one report of its place to the next."""

from __future__ import annotations

from datetime import UTC, datetime
from math import asin, cos, radians, sin, sqrt
from typing import TYPE_CHECKING, Any, Final

from commands.observations.buses.buses import BusLocated
from projections import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, in_order, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
