"""Homes that saved searches have found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater import INTEGER, TEXT, TIME, UNCHANGED, Cache, Postgres, StreamView, events, in_order, observations

from .domain import HomeOffered, SearchChanged, SearchDeleted, SearchSaved
from .matching import found, with_search, words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS: Final = 4
"""The searches of a city are in so many states of in_order, each with up to about 5,000 searches."""
COLUMNS = {
    "search": TEXT,
    "offer": TEXT,
    "home": TEXT,
    "city": TEXT,
    "price": INTEGER,
    "beds": INTEGER,
    "offered_at": TIME,
}


def found_homes(searches: DataFrame, homes: DataFrame) -> DataFrame:
    """A row per search and offer that it has found."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    parts = f.array(*(f.lit(part) for part in range(PARTS)))
    saved = searches.drop("stream", "sequence").withColumn("part", f.crc32("search_id").cast("bigint") % PARTS)
    offered = homes.drop("source").withColumn("type", f.lit(HomeOffered.type)).withColumn("part", f.explode(parts))
    rows = saved.unionByName(offered, allowMissingColumns=True).withColumn("part", f.col("part").cast("int"))
    return in_order(rows, key=("city", "part"), step=look_up, columns=COLUMNS, forget_after="3650d")


def look_up(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The state is the searches of a part of a city, see `matching`."""
    if row.type == HomeOffered.type:
        offer = {"offer": row.id, "home": row.home, "city": row.city, "price": row.price, "beds": row.beds}
        searches = found(state, row) if state else []
        return UNCHANGED, [{"search": search, **offer, "offered_at": row.time} for search in searches]
    search = None
    if row.type != SearchDeleted.type:
        words = words_of(row.words or "")
        search = [row.min_price, row.max_price, row.beds or 0, words, row.latitude, row.longitude, row.within_km]
    return with_search(state or {"searches": {}, "index": {}}, row.search_id, search), []


search_alerts = StreamView(
    name="search_alerts",
    key=("search", "offer"),
    columns=COLUMNS,
    sources={
        "searches": events(SearchSaved, SearchChanged, SearchDeleted, late_after="1m"),
        "homes": observations(HomeOffered, late_after="1m"),
    },
    final=True,
    stores=(Postgres(indexes=(("search", "-offered_at"),)), Cache()),
    query=found_homes,
    doc="homes that saved searches have found; an alert stays when the search or the home changes",
)
