"""Views of pages, visits, and how many searches led to a click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import FLOAT, INTEGER, TEXT, TIME, Cache, Postgres, StreamView, observations

from .domain import PageOpened, ResultClicked, Searched

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
