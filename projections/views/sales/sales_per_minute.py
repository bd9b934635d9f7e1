"""How much each customer buys per minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.aggregates.sales.sale import SaleMade
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_minute(sales: DataFrame) -> DataFrame:
    """A row per customer and minute."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        sales.groupBy("customer", f.window("time", "1 minute").alias("minutes"))
        .agg(f.count("*").alias("sales"), f.sum("cents").alias("cents"))
        .select("customer", f.col("minutes.start").alias("minute"), "sales", "cents")
    )


sales_per_minute = StreamView(
    name="sales_per_minute",
    key=("customer", "minute"),
    columns={"customer": TEXT, "minute": TIME, "sales": INTEGER, "cents": INTEGER},
    sources={"sales": events(SaleMade, late_after="5m")},
    late="keep",
    stores=(Postgres(indexes=(("minute", "sales"),)), Cache()),
    query=by_minute,
    doc="the sales to each customer, per minute",
)
