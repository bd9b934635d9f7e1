"""The view `streams`, every event by stream and version, in PostgreSQL: what `GET /streams/{type}/{id}` reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headwater.projections.stores.declared import Postgres, PostgresWithPersons
from headwater.projections.table.computations import envelope
from headwater.projections.table.folds import EVERY, last
from headwater.projections.table.view import TableView

STREAM: Final = ("stream", "sequence")

streams = TableView(
    name="streams",
    key=envelope("id"),
    key_name="event_id",
    columns={
        "stream": last({EVERY: envelope("stream")}),
        "sequence": last({EVERY: envelope("sequence")}),
        "type": last({EVERY: envelope("type")}),
        "time": last({EVERY: envelope("time")}),
        "partition": last({EVERY: envelope("partition")}),
        "offset": last({EVERY: envelope("offset")}),
        "record": last({EVERY: envelope("record")}),
    },
    stores=(Postgres(indexes=(STREAM,)),),
    doc="Every event, by its stream and version.",
)


def by_persons(view: TableView) -> TableView:
    """The view with an index by persons, for a deployment that has personal fields; its rows are the same."""
    return replace(view, stores=(PostgresWithPersons(indexes=(STREAM,), sealed="record"),))
