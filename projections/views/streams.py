"""Every event by stream and version, in PostgreSQL: what `GET /streams/{type}/{id}` reads."""

from projections.table.declared_stores import Postgres
from projections.table.expressions import envelope
from projections.table.folds import EVERY, last
from projections.table.view import TableView

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
    stores=(Postgres(indexes=(("stream", "sequence"),)),),
    doc="Every event, by its stream and version.",
)
