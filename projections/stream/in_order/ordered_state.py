"""Spark's operator behind in_order: it keeps the state of each key, and runs the step on rows that are complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from projections.stream.in_order.steps import Memory, Steps

WINDOW_S: Final = 5
"""Spark collects the rows of so many seconds, and passes them on together when the watermark has passed all of them."""


class OrderedRows(StatefulProcessor):
    """Input rows are windows of a key: `key`, `time` (the window's end), `start_ms`, `records` (JSON objects).

    Output rows have `made`, as Steps makes them. Spark passes a window on once, and no earlier than those before it. So
    in one batch the windows of a key are in any order, and all are later than those of earlier batches.

    State per key: what the step keeps, and the time of its timer, which forgets it.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See StatefulProcessor."""
        self._handle = handle
        self._kept = handle.getValueState("kept", "kept string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Give the step the rows of these windows."""
        memory, timer = self._read()
        for _, records in sorted((start, records) for _, _, start, records in rows):
            memory, made = self._steps.run(memory, orjson.loads(f"[{records}]"))
            for each in made:
                yield Row(made=each)
        if timer is None and memory.state is not None:
            timer = self._forgotten_at(memory)
            self._handle.registerTimer(timer)
        if timer is not None:
            self._keep(memory, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Forget the state, or if rows have come since the timer was set, look again later."""
        memory, _ = self._read()
        due = self._forgotten_at(memory)
        if memory.state is None or due <= timerValues.getCurrentWatermarkInMs():
            self._kept.clear()
        else:
            self._handle.registerTimer(due)
            self._keep(memory, due)
        return iter(())

    def _forgotten_at(self, memory: Memory) -> int:
        """The end of the window in which a row could still find the state, in milliseconds."""
        width_ms = WINDOW_S * 1_000
        last_us = memory.last_us or 0
        return ((last_us + self._steps.forget_after_us) // 1_000 // width_ms + 1) * width_ms

    def _read(self) -> tuple[Memory, int | None]:
        found = self._kept.get()
        if found is None:
            return Memory(), None
        state, last_us, timer = orjson.loads(found[0])
        return Memory(None if state is None else state.encode(), last_us), timer

    def _keep(self, memory: Memory, timer: int) -> None:
        state = None if memory.state is None else memory.state.decode()
        self._kept.update((orjson.dumps([state, memory.last_us, timer]).decode(),))
