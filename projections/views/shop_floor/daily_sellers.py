"""What each product brought in per day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.shop_floor.purchases import ItemSold
from projections import INTEGER, TEXT, TIME, Cache, Postgres, Ranking, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def per_day(sold: DataFrame) -> DataFrame:
    """A row per product and day, in UTC."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        sold.dropDuplicates(["id", "time"])
        .groupBy("product", f.window("time", "1 day").alias("days"))
        .agg(f.sum("pieces").alias("pieces"), f.sum("cents").alias("cents"))
        .select(f.col("days.start").alias("day"), "product", "pieces", "cents")
    )


daily_sellers = StreamView(
    name="daily_sellers",
    key=("day", "product"),
    columns={"day": TIME, "product": TEXT, "pieces": INTEGER, "cents": INTEGER},
    sources={"sold": observations(ItemSold, late_after="1h")},
    late="amend",
    keep_state="1d",
    stores=(Postgres(indexes=(("day", "-cents"),)), Cache(rankings=(Ranking("-cents", within=("day",)),))),
    version=2,
    query=per_day,
    doc="the sales of each product per day; filter a day, and sort by -cents for its leaderboard",
)
