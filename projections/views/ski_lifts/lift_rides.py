"""How often each lift was ridden, in 10 minutes, every 5 minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.ski_lifts.lift_ridden import LiftRidden
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
