"""What each sensor measured, per 5 seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.sensors.sensor_read import SensorRead
from projections import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_five_seconds(readings: DataFrame) -> DataFrame:
    """A row per sensor and 5 seconds. A sum of decimals does not depend on the order of the readings."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        readings.dropDuplicates(["id", "time"])
        .groupBy("sensor", f.window("time", "5 seconds").alias("seconds"))
        .agg(
            f.count("*").alias("readings"),
            f.avg(f.col("value").cast("decimal(20,6)")).cast("double").alias("average"),
            f.min("value").alias("minimum"),
            f.max("value").alias("maximum"),
        )
        .select("sensor", f.col("seconds.start").alias("start"), "readings", "average", "minimum", "maximum")
    )


sensor_averages = StreamView(
    name="sensor_averages",
    key=("sensor", "start"),
    columns={
        "sensor": TEXT,
        "start": TIME,
        "readings": INTEGER,
        "average": FLOAT,
        "minimum": FLOAT,
        "maximum": FLOAT,
    },
    sources={"readings": observations(SensorRead, late_after="1m")},
    late="amend",
    keep_state="1h",
    stores=(Postgres(indexes=(("sensor", "start"),)), Cache()),
    query=by_five_seconds,
    doc="average, minimum and maximum of each sensor, per 5 seconds",
)
