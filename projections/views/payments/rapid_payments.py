"""Cards that were charged several times within 10 seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.payments.card_charged import CardCharged
from projections import INTEGER, JSON, TEXT, TIME, Cache, Postgres, StreamView, Topic, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_quick_succession(charges: DataFrame) -> DataFrame:
    """A row per series of payments that are at most 10 seconds apart, with the ids of its payments in their order."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        charges.dropDuplicates(["id", "time"])
        .groupBy("card", f.session_window("time", "10 seconds").alias("series"))
        .agg(
            f.min("time").alias("start"),
            f.max("time").alias("last"),
            f.count("*").alias("payments"),
            f.sum("cents").alias("cents"),
            f.array_sort(f.collect_list(f.struct("time", "id"))).alias("charged"),
        )
        .where("payments >= 2")
        .select("card", "start", "last", "payments", "cents", f.to_json("charged.id").alias("ids"))
    )


rapid_payments = StreamView(
    name="rapid_payments",
    key=("card", "start"),
    columns={"card": TEXT, "start": TIME, "last": TIME, "payments": INTEGER, "cents": INTEGER, "ids": JSON},
    sources={"charges": observations(CardCharged, late_after="30s")},
    final=True,
    version=2,
    stores=(Postgres(indexes=(("start",),)), Cache(), Topic()),
    query=in_quick_succession,
    doc="cards that were charged twice or more within 10 seconds",
)
