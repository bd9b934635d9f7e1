"""The query of a real-time view: from each record of its source to records of `patches`, without batches.

All versions of a row come from one partition of its topic, in the order of their offsets. So a patch has the place of
its record, as those of table views have: loaders remove duplicates by it, and heartbeats become progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.errors import StreamQueryFailed, ViewDeclarationError
from headwater.projections.spark.live import read_live, start_realtime
from headwater.projections.spark.patch_sql import exploded, output_record, partition_sql, progress_records, sendable
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.frames import HEARTBEAT, OFFSET, PLACED, placed_frame
from headwater.projections.spark.stream_queries.output import fields_of, key_text, returned
from headwater.projections.spark.stream_queries.passing import passing
from headwater.projections.spark.stream_queries.repeatable import check_repeatable
from headwater.projections.spark.stream_queries.sealed_columns import check_sealed
from headwater.projections.stream.declaring.view import StreamView
from headwater.projections.table.expressions import literal
from headwater.projections.table.patch import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH: Final = "10 minutes"
"""How long Spark lets a query run before it stores offsets. They are not needed, but each time costs a short pause."""


@dataclass(frozen=True)
class RealtimeQuery:
    """What runs for all generations of one version of a view. session: the application's."""

    session: SparkSession
    view: StreamView
    settings: LogSettings
    checkpoint: Checkpoint

    def start(self, starting_offsets: Mapping[str, int], batch: str = BATCH) -> StreamingQuery:
        """Start the query at an offset per source; it needs a thread for each of them, all the time.

        Raises ViewDeclarationError, and StreamQueryFailed if Spark refuses to start it.
        """
        self.checkpoint.create()
        records = read_live(self.session, self.settings, starting_offsets)
        made = sendable(realtime_records(records, self.view, self.settings))
        try:
            return start_realtime(made, self.view.tag, self.settings, self.checkpoint.location, batch)
        except PySparkException as error:
            raise StreamQueryFailed(self.view.tag, reason(error)) from error


def realtime_records(records: DataFrame, view: StreamView, settings: LogSettings) -> DataFrame:
    """The output of the records of the view's topic: `topic, key, value, partition`, in the order of each partition.

    records: a stream or a batch in the form of Spark's Kafka source. Raises ViewDeclarationError.
    """
    (source,) = view.sources.values()
    place = "`partition`" if source.topic == EVENTS else f"concat({literal(source.topic + '/')}, `partition`)"
    row = f"if({HEARTBEAT}, null, {key_text(view)})"
    columns = [f"{hidden} as {shown}" for hidden, shown in zip(PLACED, _SHOWN, strict=True)]
    rows = placed_rows(records, view).selectExpr(f"{row} as row", f"{fields_of(view, OFFSET)} as c", *columns)
    head = f"{place} as p, `offset` as o, {WHOLE} as i, timestamp_ms as t"
    # without the tag: a row has the same partition in every generation, for stores that share a topic
    patch = output_record(
        PATCHES,
        f"concat({literal(view.tag + '/')}, row)",
        f"to_json(struct({head}, c))",
        partition_sql("row", settings),
        settings,
    )
    progress = progress_records(place, [view], settings)
    return exploded(rows, f"if(heartbeat, {progress}, array({patch}))").where("key is not null")


_SHOWN: Final = ("`partition`", "`offset`", "timestamp_ms", "heartbeat")


def placed_rows(records: DataFrame, view: StreamView) -> DataFrame:
    """The rows that the query of `view` returns, and heartbeats, with the columns PLACED.

    Raises ViewDeclarationError.
    """
    ((name, source),) = view.sources.items()
    given = placed_frame(records, name, source)
    rows = returned(view, {name: given.select(*source.columns)}, streaming=records.isStreaming)
    check_repeatable(view, rows)
    check_sealed(view, rows)
    try:
        passed = passing(rows, given, hidden=PLACED, keeping=HEARTBEAT, identity=source.ordering)
    except ValueError as error:
        raise ViewDeclarationError(
            view.name,
            f"its query cannot run in real-time mode, because {error}: use select, where, explode of arrays, and inner "
            "or left joins with tables that the query makes, or leave out realtime",
        ) from error
    if not passed.identifying & set(view.key_columns):
        raise ViewDeclarationError(
            view.name,
            f"the key of a real-time view must contain a column with the {' or '.join(source.ordering)} of the record, "
            "so that all versions of a row come from one partition",
        )
    return passed.rows
