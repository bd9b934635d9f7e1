"""Stream views like each other, for benches: a count and an average per gate and window of ten seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import FLOAT, INTEGER, TEXT, TIME, Observation, Postgres, StreamView, observations
from headwater.projections.registry import ViewRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_S = 10


class GatePassed(Observation, type="gate_passed"):
    """Something passed a gate."""

    gate: str
    weight: int


def per_window(passages: DataFrame) -> DataFrame:
    """A row per gate and window."""
    from pyspark.sql import functions as f

    return (
        passages.groupBy("gate", f.window("time", "10 seconds").alias("span"))
        .agg(f.count("*").alias("number"), f.avg("weight").alias("weight"))
        .select("gate", f.col("span.start").alias("since"), "number", "weight")
    )


def registry(views: int) -> ViewRegistry:
    """So many views of one query."""
    return ViewRegistry((__name__, _view(number)) for number in range(1, views + 1))


def _view(number: int) -> StreamView:
    return StreamView(
        name=f"gates_{number}",
        key=("gate", "since"),
        columns={"gate": TEXT, "since": TIME, "number": INTEGER, "weight": FLOAT},
        sources={"passages": observations(GatePassed, late_after="10s")},
        stores=(Postgres(),),
        query=per_window,
    )
