"""Visits: what a visitor opened until a pause of more than 30 minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.web.page_opened import PageOpened
from projections import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_visit(opened: DataFrame) -> DataFrame:
    """A row per visit. Of pages that were opened at the same time, the order is that of their ids."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    opening = f.struct("time", "view_id", "page")
    return (
        opened.dropDuplicates(["view_id", "time"])
        .groupBy("visitor", f.session_window("time", "30 minutes").alias("visit"))
        .agg(f.count("*").alias("pages"), f.min(opening).alias("first"), f.max(opening).alias("last"))
        .select(
            "visitor",
            f.col("first.time").alias("start"),
            "pages",
            ((f.unix_millis("last.time") - f.unix_millis("first.time")) / 1000).alias("seconds"),
            f.col("first.page").alias("entry_page"),
            f.col("last.page").alias("exit_page"),
        )
    )


visits = StreamView(
    name="visits",
    key=("visitor", "start"),
    columns={
        "visitor": TEXT,
        "start": TIME,
        "pages": INTEGER,
        "seconds": FLOAT,
        "entry_page": TEXT,
        "exit_page": TEXT,
    },
    sources={"opened": observations(PageOpened, late_after="10m")},
    final=True,
    stores=(Postgres(indexes=(("start",),)), Cache()),
    query=by_visit,
    doc="visits, which end with a pause of 30 minutes: pages, duration, entry and exit",
)
