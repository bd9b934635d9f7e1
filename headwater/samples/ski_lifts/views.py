"""Rides per lift, and the busiest lift of ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

from .domain import LiftRidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def busiest(rides: DataFrame) -> DataFrame:
    """A row per 10 minutes; of lifts with equally many rides, the first by name."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        rides.dropDuplicates(["id", "time"])
        .groupBy(f.window("time", "10 minutes", "5 minutes").alias("minutes"))
        .agg(f.mode("lift", deterministic=True).alias("lift"), f.collect_list("lift").alias("ridden"))
        .select(
            f.col("minutes.start").alias("start"),
            "lift",
            f.expr("size(filter(ridden, each -> each = lift))").alias("rides"),
            f.size("ridden").alias("all_rides"),
        )
    )


busiest_lift = StreamView(
    name="busiest_lift",
    key="start",
    key_name="window",
    columns={"start": TIME, "lift": TEXT, "rides": INTEGER, "all_rides": INTEGER},
    sources={"rides": observations(LiftRidden, late_after="30m")},
    late="amend",
    keep_state="6h",
    stores=(Postgres(indexes=(("start",),)), Cache()),
    query=busiest,
    doc="the lift with most rides, in 10 minutes that begin every 5 minutes",
)


def by_ten_minutes(rides: DataFrame) -> DataFrame:
    """A row per lift and 10 minutes; each ride is in two of them."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        rides.dropDuplicates(["id", "time"])
        .groupBy("lift", f.window("time", "10 minutes", "5 minutes").alias("minutes"))
        .agg(f.count("*").alias("rides"))
        .select("lift", f.col("minutes.start").alias("start"), "rides")
    )


lift_rides = StreamView(
    name="lift_rides",
    key=("lift", "start"),
    columns={"lift": TEXT, "start": TIME, "rides": INTEGER},
    sources={"rides": observations(LiftRidden, late_after="30m")},
    late="amend",
    keep_state="6h",
    stores=(Postgres(indexes=(("start", "rides"),)), Cache()),
    query=by_ten_minutes,
    doc="rides of each lift, in 10 minutes that begin every 5 minutes",
)
