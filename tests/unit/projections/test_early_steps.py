"""in_order with early: what was sent in the end is what a plain fold makes, whatever the arrival and the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import BOOLEAN, INTEGER, JSON, TEXT, TIME
from headwater.projections.stream.in_order import row_history, tail
from headwater.projections.stream.in_order.early import EarlySteps
from headwater.projections.stream.in_order.early_state import EarlyRows
from headwater.projections.stream.in_order.row_history import InMemory, RowHistory
from headwater.projections.stream.in_order.steps import Memory, StepFailed, Steps
from tests.support.seeds import examples

GIVEN = {"id": TEXT, "time": TIME, "recordedtime": TIME, "value": INTEGER}
MADE = {"name": TEXT, "seen": JSON, "gone": BOOLEAN}
MS: Final = 1_000
LATE_US, FORGET_US = 6 * MS, 4 * MS

Batches = Sequence[Sequence[dict[str, Any]]]
Rows = dict[str, Any]


class Value:
    """A value or a map of Spark's state, for one key."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def get(self) -> Any:
        return self.values.get(None)

    def update(self, value: Any) -> None:
        self.values[None] = value

    def clear(self) -> None:
        self.values.clear()

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.values[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self.values[key]


class Worker:
    """What Spark does for one key: it keeps the state as texts, counts the watermark and fires timers."""

    def __init__(self, step: Callable[..., Any]) -> None:
        steps = Steps(step, GIVEN, MADE, timedelta(microseconds=FORGET_US))
        self.value, self.maps, self.timers = Value(), {"segments": Value(), "chunks": Value()}, list[int]()
        self._steps = EarlySteps(steps, ("name",), "gone", LATE_US)
        self._watermark_ms, self.rows = 0, Rows()

    def getValueState(self, *_: str) -> Value:  # noqa: N802
        return self.value

    def getMapState(self, name: str, *_: str) -> Value:  # noqa: N802
        return self.maps[name]

    def registerTimer(self, at: int) -> None:  # noqa: N802
        self.timers.append(at)

    def getCurrentWatermarkInMs(self) -> int:  # noqa: N802
        return self._watermark_ms

    def batch(self, records: Sequence[dict[str, Any]], watermark_ms: int = 0) -> None:
        """One batch, with a new operator, as after a restart."""
        self._watermark_ms = watermark_ms
        found: Any = EarlyRows(self._steps)
        found.init(self)
        if records:
            given_ = [Given(orjson.dumps(each).decode()) for each in records]
            for row in found.handleInputRows(("a",), iter(given_), self):
                made = orjson.loads(row.made)
                self.rows.pop(made["name"], None)
                if not made["gone"]:
                    self.rows[made["name"]] = made["seen"]
        due = [each for each in self.timers if each <= watermark_ms]
        self.timers = [each for each in self.timers if each > watermark_ms]
        for _ in due:
            assert list(found.handleExpiredTimer(("a",), self, None)) == []


class Given:
    """A row of Spark."""

    def __init__(self, record: str) -> None:
        self.record = record


def record(time: int, id_: str, value: int = 0, delay: int = 0) -> dict[str, Any]:
    return {"id": id_, "time": time * MS, "recordedtime": (time + delay) * MS, "value": value}


def folded(step: Callable[..., Any], records: Sequence[dict[str, Any]]) -> Rows:
    """The rows of one run over everything, in order."""
    made = Steps(step, GIVEN, MADE, timedelta(microseconds=FORGET_US)).run(Memory(), records)[1]
    rows = Rows()
    for row in map(orjson.loads, made):
        rows.pop(row["name"], None)
        if not row["gone"]:
            rows[row["name"]] = row["seen"]
    return rows


def counting(state: Any, row: Any) -> tuple[Any, list[Rows]]:
    """The state changes with every row, and some rows make some rows, or delete some."""
    count = (state or 0) + row.value
    names = {0: [], 1: ["x"], 2: ["y", row.id], 3: ["x", "y"]}[count % 4]
    return count, [{"name": each, "seen": [count, row.id], "gone": count % 7 == 6} for each in names]


def matching(state: Any, row: Any) -> tuple[Any, list[Rows]]:
    """The state changes seldom: values below 3 are a set of wanted values, and others are looked up in it."""
    wanted = state or []
    if row.value < 3:
        return sorted({*wanted, row.value}) if row.value not in wanted else [n for n in wanted if n != row.value], []
    return state, [{"name": f"{n}", "seen": row.id, "gone": False} for n in wanted if row.value % (n + 2) == 0]


records = st.builds(record, st.integers(0, 16), st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 6))

PAUSES_MS = st.lists(st.sampled_from([0, 0, 1, 9, 30]), min_size=10, max_size=10)


@st.composite
def arriving(draw: st.DrawFn) -> Batches:
    """Records in the order of acceptance, cut into batches, in any order within each."""
    found = sorted(draw(st.lists(records, min_size=8, max_size=40)), key=lambda each: each["recordedtime"])
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), min_size=3, max_size=9)))
    parts = [found[start:end] for start, end in zip([0, *cuts], [*cuts, len(found)], strict=True)]
    return [draw(st.permutations(part)) for part in parts]


def later(batches: Batches, pauses_ms: Sequence[int]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Batches with a pause before each, and a time that no later record is before, in milliseconds."""
    for batch, pause_ms in zip(batches, accumulate(pauses_ms), strict=False):
        moved = {name: pause_ms * MS for name in ("time", "recordedtime")}
        yield pause_ms, [each | {name: each[name] + by for name, by in moved.items()} for each in batch]


@pytest.mark.parametrize("step", [counting, matching])
@given(batches=arriving(), pauses_ms=PAUSES_MS)
@settings(max_examples=examples(50))
def test_the_rows_are_those_of_a_plain_fold(
    step: Callable[..., Any], batches: Batches, pauses_ms: Sequence[int]
) -> None:
    check(step, batches, [0] * len(batches))
    check(step, batches, pauses_ms)


def check(step: Callable[..., Any], batches: Batches, pauses_ms: Sequence[int]) -> None:
    worker, seen = Worker(step), list[dict[str, Any]]()
    for watermark_ms, batch in later(batches, pauses_ms):
        worker.batch([], watermark_ms)
        worker.batch(batch, watermark_ms)
        seen += batch
        assert worker.rows == folded(step, seen)


@given(batches=arriving(), pauses_ms=PAUSES_MS)
def test_rows_of_the_past_are_found_in_segments(batches: Batches, pauses_ms: Sequence[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_history, "FLUSH_BYTES", 30)
        patched.setattr(row_history, "MERGE_BYTES", 100)
        check(counting, batches, pauses_ms)


@pytest.mark.parametrize("step", [counting, matching])
@given(batches=arriving(), pauses_ms=PAUSES_MS)
@settings(max_examples=examples(50))
def test_rows_that_are_stored_apart_change_nothing(
    step: Callable[..., Any], batches: Batches, pauses_ms: Sequence[int]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tail, "CHUNK_ROWS", 1 + len(batches) % 3)
        check(step, batches, [0] * len(batches))
        check(step, batches, pauses_ms)


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, "1", "2" * 40]), max_size=4)))
def test_the_past_is_a_dict(added: list[dict[str, str | None]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_history, "FLUSH_BYTES", 60)
        found, expected = RowHistory(), dict[str, str | None]()
        for rows in added:
            found.add(rows)
            expected |= rows
            assert found.find("abcdef") == {key: row for key, row in expected.items() if row is not None}
    assert isinstance(found.segments, InMemory)
    assert len(found.segments) == len(found.sizes) <= 8


def test_a_step_is_given_only_rows_whose_state_has_changed() -> None:
    given_ = list[tuple[str, Any]]()

    def noting(state: Any, row: Any) -> tuple[Any, list[Rows]]:
        given_.append((row.id, state))
        return matching(state, row)

    worker = Worker(noting)
    worker.batch([record(1, "a", 2), record(4, "b", 8), record(6, "c", 9)])
    worker.batch([record(5, "d", 4), record(7, "e", 12)])
    assert given_ == [("a", None), ("b", [2]), ("c", [2]), ("d", [2]), ("e", [2])]
    worker.batch([record(3, "f", 1)])
    assert given_[5:] == [("f", [2]), *((id_, [1, 2]) for id_ in "bdce")]


def test_a_row_that_is_taken_back_gives_way_to_the_one_before() -> None:
    worker = Worker(matching)
    worker.batch([record(0, "a", 1), record(1, "b", 3), record(4, "x", 5), record(8, "y", 5), record(9, "c", 6)])
    assert worker.rows == {"1": '"c"'}
    worker.batch([record(9, "b", 1, 5)])
    assert worker.rows == {"1": '"b"'}, "from the rows that are complete"
    worker = Worker(matching)
    worker.batch([record(1, "a", 1), record(3, "c", 6)])
    worker.batch([record(2, "b", 1, 5)])
    assert worker.rows == {}, "there was none before"


def test_what_is_kept_is_bounded_by_late_rows_and_is_removed_when_it_is_forgotten() -> None:
    worker, sizes = Worker(counting), list[int]()
    for number in range(0, 600, 3):
        worker.batch([record(number, "a", 4)])
        sizes.append(len(worker.value.get()[0]))
    assert max(sizes[100:]) <= max(sizes[:100]) + 50
    worker = Worker(counting)
    worker.batch([record(5, "a", 4)])
    worker.batch([], 9)
    assert worker.value.get() and worker.timers == [10]
    worker.batch([], 10)
    assert (worker.value.get(), worker.timers) == (None, [])


def failing(state: Any, row: Any) -> tuple[Any, list[Rows]]:
    return state, [{"name": 5, "seen": None, "gone": False}]


def test_a_step_that_fails_names_the_row() -> None:
    with pytest.raises(StepFailed, match='step "failing" failed at row "a": column "name" is declared TEXT'):
        Worker(failing).batch([record(1, "a")])
