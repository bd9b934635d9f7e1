"""Which tier each customer was in, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.aggregates.sales.membership import TierChanged
from projections import TEXT, TIME, Cache, Postgres, StreamView, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def intervals(changes: DataFrame) -> DataFrame:
    """A row per tier that a customer was in; the present one has no end."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        changes.groupBy("customer")
        .agg(f.array_sort(f.collect_list(f.struct("time", "sequence", "tier"))).alias("history"))
        .select("customer", "history", f.posexplode("history").alias("number", "change"))
        .select(
            "customer",
            "change.tier",
            f.col("change.time").alias("valid_from"),
            f.expr("get(history, number + 1).time").alias("valid_to"),
        )
        .where("valid_to is null or valid_to > valid_from")
    )


membership_tiers = StreamView(
    name="membership_tiers",
    key=("customer", "valid_from"),
    columns={"customer": TEXT, "tier": TEXT, "valid_from": TIME, "valid_to": TIME},
    sources={"changes": events(TierChanged, late_after="1m")},
    late="amend",
    keep_state="30d",
    stores=(Postgres(indexes=(("tier", "valid_to"),)), Cache()),
    query=intervals,
    doc="the tiers of each customer, with the times from which and until which they applied",
)
