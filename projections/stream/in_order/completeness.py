"""When rows are complete, by Spark's plan, and which queries send them before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from headwater.projections.stream.declaring.plans import analysed, nodes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WATERMARK: Final = "EventTimeWatermark"


def complete_ms(rows: DataFrame) -> int:
    """How many milliseconds after the newest row of a batch an earlier row can still come in a later one: the longest
    delay of the watermarks of its sources.

    Raises ValueError if it has no watermark.
    """
    frame: Any = rows
    watermark = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
    found = [each for each in nodes(analysed(rows)) if each.nodeName() == _WATERMARK]
    delays = [int(watermark.getDelayMs(each.delay())) for each in found]
    if not delays:
        raise ValueError("in_order with early needs the rows of a source, with their time")
    return max(delays)


Key = tuple[str, ...]
"""The columns that a query names as the key of its view."""
_DECLARED: ContextVar[list[Key] | None] = ContextVar("declared", default=None)


@contextmanager
def early_declared() -> Iterator[list[Key]]:
    """Collect the keys of rows that calls of in_order in this block send early."""
    found: list[Key] = []
    token = _DECLARED.set(found)
    try:
        yield found
    finally:
        _DECLARED.reset(token)


def declare_early(key: Key) -> None:
    """Say to the surrounding `early_declared`, if there is one, that rows with this key are sent early."""
    declared = _DECLARED.get()
    if declared is not None:
        declared.append(key)
