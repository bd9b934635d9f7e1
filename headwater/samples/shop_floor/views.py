"""What sells best, at all and on each day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import INTEGER, TEXT, TIME, Cache, Postgres, Ranking, StreamView, observations

from .domain import ItemSold

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


def per_product(sold: DataFrame) -> DataFrame:
    """A row per product."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        sold.dropDuplicates(["id", "time"])
        .groupBy("product")
        .agg(f.sum("pieces").alias("pieces"), f.sum("cents").alias("cents"), f.max("time").alias("last_sold"))
    )


top_sellers = StreamView(
    name="top_sellers",
    key="product",
    columns={"product": TEXT, "pieces": INTEGER, "cents": INTEGER, "last_sold": TIME},
    sources={"sold": observations(ItemSold, late_after="1h")},
    late="amend",
    keep_state="1d",
    stores=(Postgres(indexes=(("-cents",),)), Cache(rankings=(Ranking("-cents"),))),
    version=2,
    query=per_product,
    doc="the sales of each product; sort by -cents for the leaderboard",
)
