"""A selection of events, on Kafka's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from projections.errors import WrongCondition
from projections.generations.selection import Selection
from projections.spark.events import TOMBSTONE_ROW, LogSchema, parse
from projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECORD = (
    "cast(key as binary) as key",
    "value",
    "cast(`partition` as int) as `partition`",
    "`offset`",
    "time as timestamp",
)


def selected(records: DataFrame, view: TableView, selection: Selection) -> DataFrame:
    """Those of Kafka's records of `events` that `selection` names by time and condition; offsets are the reader's.

    The condition may read fields that the view does not. A record that is no event stays, for it is not known what it
    would have been; a tombstone stays whatever its time is, for it erases what is older. Raises WrongCondition.
    """
    if selection.since is not None and selection.since.time_ms is not None:
        records = records.where(f"{TOMBSTONE_ROW} or unix_millis(timestamp) >= {selection.since.time_ms}")
    if selection.until is not None and selection.until.time_ms is not None:
        records = records.where(f"{TOMBSTONE_ROW} or unix_millis(timestamp) < {selection.until.time_ms}")
    if selection.where is None:
        return records
    try:
        kept = parse(records, LogSchema.of([view], every_field=True)).where(
            f"refusal is not null or ({selection.where})"
        )
    except PySparkException as error:
        raise WrongCondition(selection.where, (error.getMessage() or str(error)).splitlines()[0]) from error
    return kept.selectExpr(*_RECORD)
