"""How often each page was opened, per 5 minutes; a view that was reported twice counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.web.page_opened import PageOpened
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_five_minutes(opened: DataFrame) -> DataFrame:
    """A row per page and 5 minutes.

    An id is remembered as long as its report may be repeated without being late.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        opened.dropDuplicates(["view_id", "time"])
        .groupBy("page", f.window("time", "5 minutes").alias("minutes"))
        .agg(f.count("*").alias("views"))
        .select("page", f.col("minutes.start").alias("start"), "views")
    )


page_views = StreamView(
    name="page_views",
    key=("page", "start"),
    columns={"page": TEXT, "start": TIME, "views": INTEGER},
    sources={"opened": observations(PageOpened, late_after="10m")},
    stores=(Postgres(indexes=(("start", "views"),)), Cache()),
    query=by_five_minutes,
    doc="views of each page, per 5 minutes",
)
