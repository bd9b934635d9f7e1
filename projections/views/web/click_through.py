"""How many searches led to a click within an hour, per query and hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.observations.web.result_clicked import ResultClicked
from commands.observations.web.searched import Searched
from projections import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_query(searches: DataFrame, clicks: DataFrame) -> DataFrame:
    """A row per query and hour of its searches, with those that nobody clicked on."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    searched = searches.select("search_id", "query", f.col("time").alias("searched_at"))
    clicked = clicks.select(f.col("search_id").alias("clicked_id"), f.col("time").alias("clicked_at"))
    within_an_hour = f.expr(
        "search_id = clicked_id and clicked_at >= searched_at and clicked_at <= searched_at + interval 1 hour"
    )
    return (
        searched.join(clicked, within_an_hour, "left_outer")
        .select("search_id", "query", "searched_at", "clicked_id")  # of times, only that of the search
        .groupBy("query", f.window("searched_at", "1 hour").alias("hours"))
        .agg(
            # a set: the join has a row per click, and a report may be sent twice
            f.size(f.collect_set("search_id")).alias("searches"),
            f.size(f.collect_set("clicked_id")).alias("clicked"),
        )
        .select(
            "query",
            f.col("hours.start").alias("hour"),
            "searches",
            "clicked",
            (f.col("clicked") / f.col("searches")).alias("rate"),
        )
    )


click_through = StreamView(
    name="click_through",
    key=("query", "hour"),
    columns={"query": TEXT, "hour": TIME, "searches": INTEGER, "clicked": INTEGER, "rate": FLOAT},
    sources={
        "searches": observations(Searched, late_after="10m"),
        "clicks": observations(ResultClicked, late_after="10m"),
    },
    final=True,
    stores=(Postgres(indexes=(("hour", "rate"),)), Cache()),
    query=by_query,
    doc="searches per query and hour, and how many led to a click within an hour",
)
