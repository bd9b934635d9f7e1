"""Where each bus was last, and how late it was at its last stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commands.observations.buses.buses import BusLocated, BusStopped
from projections import INTEGER, POINT, TEXT, TIME, Cache, Elasticsearch, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    found = f.lit(None).cast("bigint")
    for (line, stop), seconds in planned.items():
        is_here = (f.col("stopped.line") == line) & (f.col("stopped.stop") == stop)
        found = f.when(is_here, f.lit(seconds)).otherwise(found)
    return found


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
