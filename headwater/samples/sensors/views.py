"""What the sensors measured, and which of them went silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

from .domain import SensorRead

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


def until_silent(readings: DataFrame) -> DataFrame:
    """A row per silence: a session of readings ends when the next one would come too late."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        readings.groupBy("sensor", f.session_window("time", "30 seconds").alias("active"))
        .agg(f.max(f.struct("time", "id", "value")).alias("last"))
        .select(
            "sensor",
            f.col("last.time").alias("silent_since"),
            f.col("active.start").alias("active_since"),
            f.col("last.value").alias("last_value"),
        )
    )


sensor_silences = StreamView(
    name="sensor_silences",
    key=("sensor", "silent_since"),
    columns={"sensor": TEXT, "silent_since": TIME, "active_since": TIME, "last_value": FLOAT},
    sources={"readings": observations(SensorRead, late_after="1m")},
    late="keep",
    final=True,
    version=2,
    stores=(Postgres(indexes=(("silent_since",),)), Cache()),
    query=until_silent,
    doc="sensors that sent nothing for 30 seconds, with their last reading",
)
