"""Leaves out events that a later tombstone erases, even before compaction removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import source_id, topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.folding.erasures import Tombstones, merged
from headwater.projections.folding.fold_records import Erased
from headwater.projections.table.expressions import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY, _PARTITION, _UNTIL = "_erased_key", "_erased_partition", "_erased_until"


def tombstones(records: DataFrame, settings: LogSettings) -> Tombstones:
    """Those of events among Kafka's records."""
    found = records.where(f"{_is_event(settings)} and value is null and key is not null")
    places = found.select("partition", "key", "offset").collect()
    return merged({source_id(EVENTS, partition): {bytes(key): offset}} for partition, key, offset in places)


def remaining(records: DataFrame, erased: Erased, settings: LogSettings) -> DataFrame:
    """Kafka's records without the events that `erased` names; records after the tombstone stay."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rows = [
        (topic_and_partition(source)[1], key, until) for source, keys in erased.items() for key, until in keys.items()
    ]
    schema = f"{_PARTITION} int, {_KEY} binary, {_UNTIL} bigint"
    # Spark does not know how few they are, and would sort the log
    few = F.broadcast(records.sparkSession.createDataFrame(rows, schema))
    is_erased = F.expr(f"{_is_event(settings)} and `partition` = {_PARTITION} and key = {_KEY} and `offset` < {_UNTIL}")
    return records.join(few, is_erased, "left_anti")


def _is_event(settings: LogSettings) -> str:
    return f"topic = {literal(settings.topic(EVENTS))}"
