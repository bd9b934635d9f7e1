"""The query of the views of late observations. Its text is in their fingerprints, so nothing else is in this module."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def late_rows(**sources: DataFrame) -> DataFrame:
    """The rows of all sources, as they are."""
    return reduce(lambda all_rows, rows: all_rows.unionByName(rows), sources.values())
