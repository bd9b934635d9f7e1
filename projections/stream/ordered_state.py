"""Spark's operator behind in_order: it keeps the state of each key, and runs the step on rows that are complete."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Any, Final

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.projections.stream.steps import Memory, Steps

WINDOW_S: Final = 5
"""Spark collects the rows of so many seconds, and passes them on together when the watermark has passed all of them."""
WINDOW_MS: Final = WINDOW_S * 1_000


MOST_CHARACTERS: Final = 32 * 1024 * 1024
"""Of windows in memory: a rebuild passes on all windows of a key together, which may be those of years."""
WINDOW_CHARACTERS: Final = 200
"""What a window takes beside its records, about."""

Window = tuple[int, str]
"""Its start, and its records."""


def sorted_windows(windows: Iterable[Window], most: int = MOST_CHARACTERS) -> Iterator[str]:
    """The records of the windows of a key, in the order of their start. most: characters that are in memory."""
    with ExitStack() as opened:
        runs, some, size = list[IO[bytes]](), list[Window](), 0
        for window in windows:
            some.append(window)
            size += len(window[1]) + WINDOW_CHARACTERS
            if size > most:
                runs.append(opened.enter_context(tempfile.TemporaryFile()))
                runs[-1].writelines(orjson.dumps(row) + b"\n" for row in sorted(some))
                runs[-1].seek(0)
                some, size = [], 0
        for _, records in heapq.merge(*(map(orjson.loads, run) for run in runs), map(list, sorted(some))):
            yield records


class OrderedRows(StatefulProcessor):
    """Input rows are windows of a key: `key`, `time` (the window's end), `start_ms`, `records` (JSON objects).

    Output rows have `made`, as Steps makes them. Spark passes a window on once, and no earlier than those before it. So
    in one batch the windows of a key are in any order, and all are later than those of earlier batches.

    State per key: what the step keeps, and the time of its timer, which calls `on_time`, or forgets the state.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._kept = handle.getValueState("kept", "kept string")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Give the step the rows of these windows."""
        memory, timer = self._read()
        for records in sorted_windows((start, records) for _, _, start, records in rows):
            memory, ordered = self._steps.run(memory, orjson.loads(f"[{records}]"))
            for row in ordered:
                yield Row(made=row)
        due = self._due(memory)
        if due is not None and (timer is None or due < timer):
            if timer is not None:
                self._handle.deleteTimer(timer)
            self._handle.registerTimer(due)
            timer = due
        if timer is not None:
            self._keep(memory, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Call `on_time`, forget the state, or if rows have come since the timer was set, look again later."""
        memory, _ = self._read()
        complete_ms = timerValues.getCurrentWatermarkInMs()
        memory, rows = self._steps.wake(memory, complete_ms // WINDOW_MS * WINDOW_MS * 1_000)
        for row in rows:
            yield Row(made=row)
        due = self._due(memory)
        if due is None or due <= complete_ms:
            self._kept.clear()
        else:
            self._handle.registerTimer(due)
            self._keep(memory, due)

    def _due(self, memory: Memory) -> int | None:
        """When all rows are there up to the call of `on_time`, or else that could still find the state, in ms."""
        if memory.wake_us is not None:
            return _end_of_window(memory.wake_us)
        if memory.state is None:
            return None
        return _end_of_window((memory.last_us or 0) + self._steps.forget_after_us)

    def _read(self) -> tuple[Memory, int | None]:
        kept_state = self._kept.get()
        if kept_state is None:
            return Memory(), None
        state, last_us, timer, *wake_us = orjson.loads(kept_state[0])
        return Memory(None if state is None else state.encode(), last_us, *wake_us), timer

    def _keep(self, memory: Memory, timer: int) -> None:
        state = None if memory.state is None else memory.state.decode()
        wake = [] if memory.wake_us is None else [memory.wake_us]
        self._kept.update((orjson.dumps([state, memory.last_us, timer, *wake]).decode(),))


def _end_of_window(time_us: int) -> int:
    return (time_us // 1_000 // WINDOW_MS + 1) * WINDOW_MS
