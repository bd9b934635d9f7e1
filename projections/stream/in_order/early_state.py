"""Spark's operator behind in_order with early: it keeps the last rows of each key, and sends what changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import orjson
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from headwater.projections.stream.in_order.early import EarlySteps
from headwater.projections.stream.in_order.row_history import RowHistory
from headwater.projections.stream.in_order.tail import Chunk, State, Tail, packed, unpacked


class EarlyRows(StatefulProcessor):
    """Input rows are those of the source: `key`, `time`, `record` (a JSON object). Output rows have `made`, as JSON.

    Spark passes all rows of a key in a batch at once. State per key: its Tail, with its chunks and the segments of its
    past apart, and the time of the timer that forgets it.
    """

    def __init__(self, steps: EarlySteps) -> None:
        self._steps = steps

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See StatefulProcessor."""
        self._handle = handle
        self._kept = handle.getValueState("kept", "kept string")
        self._segments = _Segments(handle.getMapState("segments", "number long", "rows string"))
        self._chunks = _Segments(handle.getMapState("chunks", "number long", "rows string"))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Give the step these rows, and those again whose state has changed by that."""
        tail, timer = self._read()
        records = orjson.loads(f"[{','.join(row.record for row in rows)}]")
        for each in self._steps.add(tail, records, timerValues.getCurrentWatermarkInMs() * 1_000):
            yield Row(made=each)
        if timer is None:
            timer = self._forgotten_ms(tail)
            self._handle.registerTimer(timer)
        self._keep(tail, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Forget the state, or if rows have come since the timer was set, look again later."""
        tail, _ = self._read()
        due = self._forgotten_ms(tail)
        if due > timerValues.getCurrentWatermarkInMs():
            self._handle.registerTimer(due)
            self._keep(tail, due)
        else:
            self._steps.forget(tail)
            if tail.past.recent or tail.past.sizes:
                self._keep(tail, None)
            else:
                self._kept.clear()
        return iter(())

    def _forgotten_ms(self, tail: Tail) -> int:
        """When no row can come any more that finds the state."""
        return ((tail.newest_us or 0) + self._steps.steps.forget_after_us) // 1_000 + 1

    def _read(self) -> tuple[Tail, int | None]:
        found = self._kept.get()
        if found is None:
            return Tail(past=RowHistory(segments=self._segments), stored=self._chunks), None
        timer, start, start_us, chunks, rows, end, numbers, newest_us, recent, sizes = orjson.loads(found[0])
        past = RowHistory(recent, sizes, self._segments)
        apart = [Chunk(*each) for each in chunks]
        last = _state(end or start)
        tail = Tail(_state(start), start_us, apart, unpacked(rows), last, numbers, newest_us, past, self._chunks)
        return tail, timer

    def _keep(self, tail: Tail, timer: int | None) -> None:
        end = None if tail.end.number == tail.start.number else _stored(tail.end)
        start, past = _stored(tail.start), tail.past
        apart, rows = packed(tail.chunks), packed(tail.rows)
        values = (
            timer, start, tail.start_us, apart, rows, end, tail.numbers, tail.newest_us, past.recent, past.sizes
        )  # fmt: skip
        self._kept.update((orjson.dumps(values).decode(),))


class _Segments:
    """See Segments: those of the key that is processed."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, number: int) -> str:
        return cast("str", cast("tuple[Any, ...]", self._state.getValue((number,)))[0])

    def write(self, number: int, text: str) -> None:
        self._state.updateValue((number,), (text,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))


def _stored(state: State) -> tuple[int, str | None]:
    return state.number, None if state.text is None else state.text.decode()


def _state(stored: Any) -> State:
    number, text = stored
    return State(number, None if text is None else text.encode())
