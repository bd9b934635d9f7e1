"""Which lift was ridden most, in 10 minutes, every 5 minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.ski_lifts.lift_ridden import LiftRidden
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

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
