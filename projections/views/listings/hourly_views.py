"""How often the page of each listing was viewed, per hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.listings.listing_viewed import ListingViewed
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_by_hour(views: DataFrame) -> DataFrame:
    """A row per listing and hour; a report that was sent twice counts once."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        views.dropDuplicates(["id", "time"])
        .groupBy("listing_id", f.window("time", "1 hour").alias("hours"))
        .agg(f.count("*").alias("views"))
        .select("listing_id", f.col("hours.start").alias("hour"), "views")
    )


hourly_views = StreamView(
    name="hourly_views",
    key=("listing_id", "hour"),
    columns={"listing_id": TEXT, "hour": TIME, "views": INTEGER},
    sources={"views": observations(ListingViewed, late_after="1h")},
    late="amend",
    keep_state="1d",
    stores=(Postgres(indexes=(("listing_id", "hour"),)), Cache()),
    query=count_by_hour,
    doc="page views of each listing, per hour in which they happened",
)
