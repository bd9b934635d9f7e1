"""When a sensor went silent: it sent nothing for 30 seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.sensors.sensor_read import SensorRead
from projections import FLOAT, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
