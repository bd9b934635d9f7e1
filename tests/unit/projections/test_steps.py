"""A step function and its rows: the order, what the state may be, and what is said of wrong results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import BOOLEAN, FLOAT, INTEGER, JSON, POINT, TEXT, TIME, UNCHANGED
from headwater.projections.stream.steps import Memory, StepFailed, Steps

GIVEN = {"id": TEXT, "time": TIME, "recordedtime": TIME, "value": INTEGER}
ALL = {"text": TEXT, "number": INTEGER, "share": FLOAT, "flag": BOOLEAN, "at": TIME, "place": POINT, "json": JSON}
ROW = dict.fromkeys(ALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def steps(step: Callable[..., Any], columns: Any = None, forget_after: timedelta = timedelta(seconds=1)) -> Steps:
    return Steps(step, GIVEN, {"seen": JSON} if columns is None else columns, forget_after)


def record(time: int, id_: str, value: int = 0, recorded: int | None = 0) -> dict[str, Any]:
    return {"id": id_, "time": time, "recordedtime": recorded, "value": value}


def made(found: list[str]) -> list[Any]:
    return [seen and orjson.loads(seen) for seen in (orjson.loads(row)["seen"] for row in found)]


def seen(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    return [*(state or []), row.id][-3:], [{"seen": [row.id, row.value, state]}]


records = st.builds(
    record, st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 1), st.one_of(st.none(), st.integers(0, 2))
)


@given(st.lists(records), st.randoms())
def test_rows_come_in_order_once_whatever_their_arrival(found: list[dict[str, Any]], chance: Any) -> None:
    memory, rows = steps(seen).run(Memory(), found)
    chance.shuffle(found)
    assert steps(seen).run(Memory(), found) == (memory, rows)
    unique = sorted({(event["time"], event["id"]) for event in found})
    assert [id_ for id_, *_ in made(rows)] == [id_ for _, id_ in unique]


@given(st.lists(records), st.integers(0, 6))
def test_rows_in_two_parts_are_those_in_one(found: list[dict[str, Any]], time: int) -> None:
    memory, rows = steps(seen).run(Memory(), [event for event in found if event["time"] < time])
    then, later = steps(seen).run(memory, [event for event in found if event["time"] >= time])
    assert (then, rows + later) == steps(seen).run(Memory(), found)


def test_of_a_row_that_was_sent_twice_the_last_recorded_counts() -> None:
    found = [record(5, "a", 1, 20), record(5, "a", 3, None), record(5, "a", 2, 10)]
    assert made(steps(seen).run(Memory(), found)[1]) == [["a", 1, None]]


def test_the_state_is_forgotten_when_nothing_came_for_longer() -> None:
    at = (0, 1_000_000, 2_000_001)
    rows = steps(seen).run(Memory(), [record(time, str(number)) for number, time in enumerate(at)])[1]
    assert [state for *_, state in made(rows)] == [None, ["0"], None]


def test_a_step_never_sees_what_json_cannot_keep() -> None:
    def step(state: Any, row: Any) -> Any:
        return (1, (2, 3)), [{"seen": state}]

    assert made(steps(step).run(Memory(), [record(1, "a"), record(2, "b")])[1]) == [None, [1, [2, 3]]]


def test_a_state_that_is_unchanged_is_not_read_again() -> None:
    states = list[Any]()

    def step(state: Any, row: Any) -> Any:
        states.append(state)
        return ([*(state or []), row.id], []) if row.value else (UNCHANGED, [{"seen": state}])

    found = [record(0, "x"), record(1, "a", 1), record(2, "b"), record(3, "c"), record(4, "d", 1), record(5, "e")]
    memory, rows = steps(step).run(Memory(), found)
    assert (memory.state, made(rows)) == (b'["a","d"]', [None, ["a"], ["a"], ["a", "d"]])
    assert states[2] is states[3] is states[4]
    assert states[5] == ["a", "d"]
    memory, rows = steps(step).run(memory, [record(3_000_000, "f")])
    assert (memory.state, made(rows)) == (None, [None]), "it was forgotten before"


def test_a_state_that_was_changed_is_not_unchanged() -> None:
    def step(state: Any, row: Any) -> Any:
        state = state or []
        state.append(row.id)
        return (state if row.value else UNCHANGED), []

    found = [record(1, "a", 1), record(2, "b"), record(3, "c")]
    with pytest.raises(StepFailed, match='step "step" changed its state and returned UNCHANGED: return the new state'):
        steps(step).run(Memory(), found)


def test_a_row_has_times_in_utc_and_nulls() -> None:
    def step(state: Any, row: Any) -> Any:
        assert row.time == datetime(1970, 1, 1, 0, 0, 1, 5, UTC)
        assert row.recordedtime is None
        return None, [{"seen": row._asdict().keys() == GIVEN.keys()}]

    memory, rows = steps(step).run(Memory(), [record(1_000_005, "a", 1, None)])
    assert (memory.state, made(rows)) == (None, [True])


def test_every_type_of_column() -> None:
    values = {
        "text": "ä'\\", "number": -(2**63 - 1), "share": 2, "flag": False, "at": datetime(2026, 3, 1, 13, tzinfo=UTC),
        "place": (48, 16.5), "json": {"a": [None, "x"]},
    }  # fmt: skip
    _, (row, empty) = steps(lambda state, row: (None, [values, ROW]), ALL).run(Memory(), [record(1, "a")])
    assert orjson.loads(row) == values | {
        "share": 2.0, "at": 1_772_370_000_000_000, "place": {"lat": 48.0, "lon": 16.5}, "json": '{"a":[null,"x"]}',
    }  # fmt: skip
    assert orjson.loads(empty) == ROW


@dataclass
class Kept:
    """Not plain."""

    number: int = 1


def bad_row(**values: Any) -> Callable[..., Any]:
    return lambda state, row: (None, [ROW | values])


def endless(state: Any, row: Any) -> Any:
    yield row


def exits(state: Any, row: Any) -> Any:
    raise SystemError("line\nbreak")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (exits, 'step "exits" failed at row "a": SystemError: line break'),
        (lambda state, row: row.colour, "AttributeError: 'Row' object has no attribute 'colour'"),
        (lambda state: None, "TypeError"),
        (lambda state, row: None, "it must return a pair: the new state, and a list of rows"),
        (endless, "it must return a pair"),
        (lambda state, row: (1, {"text": 1}), "its rows must be a list, not dict"),
        (lambda state, row: (1, [7]), "a row must be a dict with text, number, share, flag, at, place, json, not int"),
        (lambda state, row: (1, [{"text": "a"}]), "a row must be a dict with text, number"),
        (lambda state, row: (Kept(), []), "its state must be made of dicts, lists, texts"),
        (lambda state, row: (row.time, []), "its state must be made of"),
        (lambda state, row: ({1: 2}, []), "its state must be made of"),
        (lambda state, row: (2**80, []), "its state must be made of"),
        (lambda state, row: ("x" * 1_000_000, []), "its state has 1,000,002 bytes: keep it below 1,000,000"),
        (bad_row(text=5), 'column "text" is declared TEXT, but the value is 5'),
        (bad_row(text="\ud800"), "TypeError: str is not valid UTF-8: surrogates not allowed"),
        (bad_row(number=True), 'column "number" is declared INTEGER, but the value is True'),
        (bad_row(number=2**63), 'column "number" is declared INTEGER'),
        (bad_row(number=1.0), 'column "number" is declared INTEGER'),
        (bad_row(share="1"), 'column "share" is declared FLOAT'),
        (bad_row(share=10**400), "OverflowError"),
        (bad_row(at=datetime(2026, 1, 1)), 'column "at" is declared TIME with a time zone'),
        (bad_row(place=(1, 2, 3)), 'column "place" is declared POINT'),
        (bad_row(json={1, 2}), "TypeError: Type is not JSON serializable: set"),
    ],
)
def test_what_a_step_may_not_do_is_named(step: Any, problem: str) -> None:
    with pytest.raises(StepFailed) as failed:
        steps(step, ALL).run(Memory(), [record(1, "a")])
    assert problem in str(failed.value)
    assert "\n" not in str(failed.value)


def test_steps_are_sent_to_workers() -> None:
    sent = pickle.loads(pickle.dumps(steps(seen)))
    assert sent.run(Memory(), [record(1, "a")]) == steps(seen).run(Memory(), [record(1, "a")])


def reminding(state: Any, row: Any) -> Any:
    """Says after three microseconds without another row that the last one was; a row 0 is to be left alone."""
    if row.value == 0:
        return state, []
    if row.value == 1:
        return UNCHANGED, []
    return [row.id], [{"seen": ["row", row.id]}], row.time + timedelta(microseconds=3)


def remind(state: Any, time: datetime) -> Any:
    after = (time - EPOCH) // timedelta(microseconds=1)
    if len(state) > 2:
        return None, [{"seen": [after, state]}]
    return [*state, "!"], [{"seen": [after, state]}], time + timedelta(microseconds=2)


def timed(step: Callable[..., Any], on_time: Callable[..., Any] = remind) -> Steps:
    return Steps(step, GIVEN, {"seen": JSON}, timedelta(microseconds=50), on_time)


@given(st.lists(st.builds(record, st.integers(0, 30), st.sampled_from("abc"), st.integers(0, 3))), st.integers(0, 31))
def test_time_passes_in_order_with_the_rows_whatever_the_parts(found: list[dict[str, Any]], time: int) -> None:
    whole, rows = timed(reminding).run(Memory(), found)
    memory, first = timed(reminding).run(Memory(), [event for event in found if event["time"] < time])
    memory, between = timed(reminding).wake(memory, time)
    memory, then = timed(reminding).run(memory, [event for event in found if event["time"] >= time])
    ends = [timed(reminding).wake(each, 2**62) for each in (whole, memory)]
    assert rows + ends[0][1] == first + between + then + ends[1][1]
    assert ends[0][0].wake_us is None


def test_a_time_is_asked_for_kept_and_given_up() -> None:
    def of(*values: int) -> list[Any]:
        memory, rows = timed(reminding).run(
            Memory(), [record(at, "abcdef"[at], value) for at, value in enumerate(values)]
        )
        return made(rows + timed(reminding).wake(memory, 2**62)[1])

    assert of(2) == [["row", "a"], [3, ["a"]], [5, ["a", "!"]], [7, ["a", "!", "!"]]]
    assert of(2, 1) == of(2), "UNCHANGED keeps the time"
    assert of(2, 0) == [["row", "a"]], "two values ask for none"
    assert of(2, 2)[:3] == [["row", "a"], ["row", "b"], [4, ["b"]]], "another row asks for another"
    assert of(2, 1, 1, 1)[:2] == [["row", "a"], [3, ["a"]]], "a row at that time comes before it"


@pytest.mark.parametrize(
    ("step", "on_time", "problem"),
    [
        (lambda *_: (None, [], 5), remind, "must be a datetime with a time zone, not 5"),
        (lambda *_: (None, [], datetime(2026, 1, 1)), remind, "must be a datetime with a time zone"),
        (lambda *_: (None, [], EPOCH + timedelta(seconds=1)), remind, "its state is forgotten: raise forget_after"),
        (lambda *_: (None, [], EPOCH, 1), remind, "or these and the time to call on_time at"),
        (lambda *_: (None, [], EPOCH), lambda _, time: (None, [], time), "return a later one"),
        (lambda *_: (None, [], EPOCH), lambda *_: 1 / 0, '"<lambda>" failed at time "1970-01-01T00:00:00.000000Z"'),
        (lambda *_: (None, [], EPOCH), None, "it must return a pair: the new state, and a list of rows; a time needs"),
    ],
)
def test_a_wrong_time_is_named(step: Any, on_time: Any, problem: str) -> None:
    with pytest.raises(StepFailed) as failed:
        memory, _ = timed(step, on_time).run(Memory(), [record(0, "a")])
        timed(step, on_time).wake(memory, 2**62)
    assert problem in str(failed.value)
