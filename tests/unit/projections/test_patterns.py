"""Patterns: which sequences of rows are reported, compared with a slow search that follows the definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, combinations
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import JSON, TEXT, TIME, Observation, occurs, pattern
from headwater.projections.stream.in_order import Matcher, Occurs, Pattern, Waiting
from headwater.projections.stream.steps import Memory, StepFailed, Steps, microseconds
from tests.support.seeds import examples

GIVEN = {"id": TEXT, "time": TIME, "type": TEXT, "note": TEXT}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """As steps are given it."""

    id: str
    time: datetime
    type: str
    note: str


class A(Observation, type="a"):
    """Comes first."""

    note: str


class B(Observation, type="b"):
    """Comes then."""

    note: str


class C(Observation, type="c"):
    """May come in between."""

    note: str


def loud(row: Any) -> bool:
    return bool(row.note == "loud")


def ids(rows: Sequence[Any]) -> dict[str, Any]:
    assert all(each.time.tzinfo is UTC for each in rows)
    return {"ids": [each.id for each in rows]}


def reported(rule: Pattern, rows: Sequence[Row]) -> list[list[str]]:
    """What is reported of rows in any order, taken in two parts."""
    within = timedelta(seconds=10)
    assert rule.within == "10s"
    step = Matcher(rule, ids, ("time",), 10_000_000)
    steps = Steps(step, GIVEN, {"ids": JSON}, within)
    half = sorted(row.time for row in rows)[len(rows) // 2] if rows else EPOCH
    memory, first = steps.run(Memory(), [stored(row) for row in rows if row.time < half])
    _, then = steps.run(memory, [stored(row) for row in rows if row.time >= half])
    return [orjson.loads(orjson.loads(text)["ids"]) for text in [*first, *then]]


def stored(row: Row) -> dict[str, Any]:
    return row._asdict() | {"time": (row.time - EPOCH) // timedelta(microseconds=1)}


def reported_on_time(rule: Pattern, rows: Sequence[Row]) -> list[list[str]]:
    """What a pattern with `unless` reports of rows in any order, taken in two parts."""
    waiting = Waiting(Matcher(rule, ids, ("time",), 10_000_000))
    steps = Steps(waiting, GIVEN, {"ids": JSON}, timedelta(seconds=10), waiting.report)
    half = sorted(row.time for row in rows)[len(rows) // 2] if rows else EPOCH
    memory, first = steps.run(Memory(), [stored(row) for row in rows if row.time < half])
    memory, between = steps.wake(memory, microseconds(half))
    memory, then = steps.run(memory, [stored(row) for row in rows if row.time >= half])
    memory, last = steps.wake(memory, 2**62)
    assert memory.wake_us is None
    return [orjson.loads(orjson.loads(text)["ids"]) for text in [*first, *between, *then, *last]]


def searched(rule: Pattern, rows: Sequence[Row]) -> Iterator[list[str]]:
    """By the definition: at each row, all sequences that end with it and begin after the previous match."""
    ordered, begin = sorted(rows, key=lambda row: (row.time, row.id)), 0
    for end, last in enumerate(ordered):
        number, found = len(rule.parts) - 1, []
        for places in combinations(range(begin, end), number):
            match = [*(ordered[place] for place in places), last]
            between = ordered[places[0] : end]
            if (
                all(part.matches(row) for part, row in zip(rule.parts, match, strict=True))
                and last.time - match[0].time <= timedelta(seconds=10)
                and not any(each.matches(row) for each in rule.without for row in between)
            ):
                found.append(places)
        if found:
            begins = max(places[0] for places in found)
            best = min(places for places in found if places[0] == begins)
            yield [ordered[place].id for place in (*best, end)]
            begin = end + 1


def searched_on_time(rule: Pattern, rows: Sequence[Row]) -> Iterator[list[str]]:
    """By the definition: the first match that is complete, and then what comes until its time is over."""
    left = sorted(rows, key=lambda row: (row.time, row.id))
    apart = replace(rule, unless=(), without=(*rule.without, *rule.unless))
    while match := next(iter_matches(apart, left), None):
        first, last = (next(row for row in left if row.id == match[place]) for place in (0, -1))
        behind = left[left.index(last) + 1 :]
        due = first.time + timedelta(seconds=10)
        stopped = [row for row in behind if row.time <= due and any(each.matches(row) for each in rule.unless)]
        if stopped:
            left = behind[behind.index(stopped[0]) + 1 :]
        else:
            yield match
            left = [row for row in behind if row.time > due]


def iter_matches(rule: Pattern, rows: Sequence[Row]) -> Iterator[list[str]]:
    """As `searched`; a pattern of one part matches each of its rows."""
    if len(rule.parts) > 1:
        return searched(rule, rows)
    return iter([row.id] for row in rows if rule.parts[0].matches(row))


rows = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 4]), st.sampled_from("aaabbbc"), st.sampled_from(["loud", ""])),
    min_size=3,
    max_size=14,
).map(
    lambda found: [
        Row(f"{kind}{number}", EPOCH + timedelta(seconds=at), kind, note)
        for number, (at, (_, kind, note)) in enumerate(zip(accumulate(gap for gap, *_ in found), found, strict=True))
    ]
)
parts = st.lists(
    st.builds(occurs, st.sampled_from([A, B]), times=st.integers(1, 2), where=st.sampled_from([None, None, loud])),
    min_size=2,
    max_size=3,
)


@settings(max_examples=examples(60))
@given(parts, st.sampled_from([(), (C,), (occurs(C, where=loud),)]), rows, st.randoms())
def test_matches_are_those_that_the_definition_says(
    found: list[Occurs], without: Any, given_rows: list[Row], chance: Any
) -> None:
    rule = pattern(*found, within="10s", without=without)
    chance.shuffle(given_rows)
    assert reported(rule, given_rows) == list(searched(rule, given_rows))


@settings(max_examples=examples(60))
@given(parts | parts.map(lambda found: found[:1]), st.sampled_from([C, (occurs(C, where=loud),)]), rows, st.randoms())
def test_what_has_not_come_is_what_the_definition_says(
    found: list[Occurs], unless: Any, given_rows: list[Row], chance: Any
) -> None:
    rule = pattern(*found, within="10s", unless=unless)
    chance.shuffle(given_rows)
    assert reported_on_time(rule, given_rows) == list(searched_on_time(rule, given_rows))


def row(text: str) -> Row:
    """`a5` is an A at 5 seconds, `a5!` a loud one."""
    kind, rest = text[0], text[1:]
    return Row(text, EPOCH + timedelta(seconds=float(rest.rstrip("!"))), kind, "loud" if rest.endswith("!") else "")


AAB = pattern(occurs(A, times=2), B, within="10s", without=(C,))


@pytest.mark.parametrize(
    ("rule", "given_rows", "matches"),
    [
        (AAB, "a0 a5 b10", ["a0 a5 b10"]),
        (AAB, "a0 a5 b10.001", []),
        (AAB, "a0 a1 a2 b3", ["a1 a2 b3"]),
        (AAB, "a0 a5 b9 b10", ["a0 a5 b9"]),
        (AAB, "a0 a5 b6 a7 b8", ["a0 a5 b6"]),
        (AAB, "a0 a5 b6 a7 a8 b9", ["a0 a5 b6", "a7 a8 b9"]),
        (AAB, "a0 a5 c6 b7", []),
        (AAB, "a0 a5 c5 b7", []),
        (AAB, "c0 a0 a5 b7 c8", []),  # at equal times, ids decide: a0 comes before c0
        (AAB, "a1 c0 a5 b7 c8", ["a1 a5 b7"]),
        (AAB, "b5 a5 a5! b6", ["a5 a5! b5"]),
        (AAB, "a0 a5 b5", ["a0 a5 b5"]),
        (pattern(B, A, within="10s"), "b5 a5", []),
        (pattern(A, occurs(B, where=loud), within="10s"), "a0 b1 b2! b3!", ["a0 b2!"]),
        (pattern(A, B, A, within="10s"), "a0 b1 a2 b3 a4", ["a0 b1 a2"]),
        (pattern(A, B, B, within="10s"), "a0 b8 a9 b10.001 b11", ["a9 b10.001 b11"]),
    ],
)
def test_what_is_a_match(rule: Pattern, given_rows: str, matches: list[str]) -> None:
    found = [row(text) for text in given_rows.split()]
    assert [" ".join(each) for each in reported(rule, found)] == matches
    assert list(searched(rule, found)) == [each.split() for each in matches]


@pytest.mark.parametrize(
    ("rule", "given_rows", "matches"),
    [
        (pattern(A, within="10s", unless=C), "a0", ["a0"]),
        (pattern(A, within="10s", unless=C), "a0 c10", []),
        (pattern(A, within="10s", unless=C), "a0 c10.001", ["a0"]),
        (pattern(A, within="10s", unless=C), "a0 a5 a10.001", ["a0", "a10.001"]),
        (pattern(A, within="10s", unless=C), "a0 a5 c6 a7", ["a7"]),
        (pattern(A, within="10s", unless=[C, occurs(B, where=loud)]), "a0 b1 a20 b21!", ["a0"]),
        (pattern(A, B, within="10s", unless=C), "a0 b1 c2 a3 b4", ["a3 b4"]),
        (pattern(A, B, within="10s", unless=C), "a0 c1 b2", []),
    ],
)
def test_what_is_a_match_if_something_does_not_come(rule: Pattern, given_rows: str, matches: list[str]) -> None:
    found = [row(text) for text in given_rows.split()]
    assert [" ".join(each) for each in reported_on_time(rule, found)] == matches
    assert list(searched_on_time(rule, found)) == [each.split() for each in matches]


def test_one_class_needs_no_type() -> None:
    rule = Matcher(pattern(occurs(A, times=2), within="10s"), ids, ("time",), 10_000_000)
    given_columns = {name: kind for name, kind in GIVEN.items() if name != "type"}
    records = [{name: stored(row(text))[name] for name in given_columns} for text in ("a1", "a2")]
    _, found = Steps(rule, given_columns, {"ids": JSON}, timedelta(seconds=10)).run(Memory(), records)
    assert len(found) == 1


def fails(rows: Sequence[Any]) -> dict[str, Any]:
    raise KeyError(rows[-1].id)


def test_what_fails_in_a_pattern_is_named() -> None:
    step = Matcher(pattern(A, B, within="10s"), fails, ("time",), 10_000_000)
    with pytest.raises(StepFailed, match='step "pattern with row=fails" failed at row "b2": KeyError'):
        Steps(step, GIVEN, {"ids": JSON}, timedelta(seconds=10)).run(
            Memory(), [stored(row(text)) for text in ("a1", "b2")]
        )


class Nameless(Observation):
    """Has no type."""


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: pattern(within="1m"), "a pattern has 2 to 20 rows, counting those of times=…, not 0"),
        (lambda: pattern(A, within="1m"), "not 1"),
        (lambda: pattern(occurs(A, times=10**9), within="1m"), "not 21"),
        (lambda: occurs(A, times=0), "times=0 of A: use a whole number from 1"),
        (lambda: occurs(A, times=True), "times=True of A"),
        (lambda: occurs(A, where="loud"), "where='loud' of A: use a function of a row"),  # type: ignore[arg-type]
        (lambda: pattern(A, Nameless, within="1m"), '"Nameless" is not a class of observations with a type'),
        (lambda: pattern(A, "b", within="1m"), "\"'b'\" is not a class of observations"),  # type: ignore[arg-type]
        (lambda: pattern(A, B, within="soon"), '"soon" is not a duration'),
        (lambda: pattern(A, B, within="1m", without=[A]), "A is both a part of the pattern and in without"),
        (lambda: pattern(A, B, within="1m", unless=B), "B is both a part of the pattern and in unless"),
        (lambda: pattern(A, within="1m", unless=occurs(C, times=2)), "unless=C with times=2: one is enough"),
        (lambda: pattern(within="1m", unless=C), "a pattern has 1 to 20 rows"),
        (lambda: pattern(A, B, within="1m", without=[occurs(C, times=2)]), "one is enough, leave out times"),
    ],
)
def test_a_pattern_that_cannot_work_is_named(wrong: Any, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        wrong()
    assert problem in str(refused.value)
