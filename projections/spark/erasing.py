"""Leaves out events that a later tombstone erases, even before compaction removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.folding.erasures import Tombstones, merged
from projections.folding.folder import Erased
from projections.spark.events import TOMBSTONE_ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY, _PARTITION, _UNTIL = "_erased_key", "_erased_partition", "_erased_until"


def tombstones(records: DataFrame) -> Tombstones:
    """Those among Kafka's records."""
    found = records.where(f"{TOMBSTONE_ROW} and key is not null").select("partition", "key", "offset").collect()
    return merged({partition: {bytes(key): offset}} for partition, key, offset in found)


def remaining(records: DataFrame, erased: Erased) -> DataFrame:
    """Kafka's records without those that `erased` names; records after the tombstone stay."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rows = [(partition, key, until) for partition, keys in erased.items() for key, until in keys.items()]
    schema = f"{_PARTITION} int, {_KEY} binary, {_UNTIL} bigint"
    # Spark does not know how few they are, and would sort the log
    few = F.broadcast(records.sparkSession.createDataFrame(rows, schema))
    is_erased = F.expr(f"`partition` = {_PARTITION} and key = {_KEY} and `offset` < {_UNTIL}")
    return records.join(few, is_erased, "left_anti")
