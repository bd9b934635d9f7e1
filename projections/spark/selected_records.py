"""Applies a selection of events to Kafka's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import WrongCondition
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.spark.events import LogSchema, parse
from headwater.projections.table.expressions import literal
from headwater.projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECORD = (
    "cast(key as binary) as key",
    "value",
    "cast(`partition` as int) as `partition`",
    "`offset`",
    "time as timestamp",
)


def selected(records: DataFrame, view: TableView, selection: Selection, settings: LogSettings) -> DataFrame:
    """Kafka's records that match the time and condition of `selection`; the reader applies its offsets.

    The condition may use fields that the view does not read. A record that is not an event stays, because its event is
    unknown. Raises WrongCondition.
    """
    if selection.since is not None and selection.since.time_ms is not None:
        records = records.where(f"unix_millis(timestamp) >= {selection.since.time_ms}")
    if selection.until is not None and selection.until.time_ms is not None:
        records = records.where(f"unix_millis(timestamp) < {selection.until.time_ms}")
    if selection.where is None:
        return records
    try:
        kept = parse(records, LogSchema.of([view], every_field=True), settings).where(
            f"refusal is not null or ({selection.where})"
        )
    except PySparkException as error:
        raise WrongCondition(selection.where, (error.getMessage() or str(error)).splitlines()[0]) from error
    return kept.selectExpr(f"concat({literal(settings.topic(''))}, topic) as topic", *_RECORD)
