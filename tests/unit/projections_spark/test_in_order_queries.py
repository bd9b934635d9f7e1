"""in_order on Spark: a step sees each row once, in the order of time, whatever the batches."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException

from headwater import FLOAT, INTEGER, JSON, POINT, TEXT, TIME, StreamView, in_order, observations, pattern
from headwater.commands.testing.past import Reported
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.spark.stream_queries.failures import reason
from headwater.projections.spark.stream_queries.query import computed
from headwater.testing import at, check_any_order, heartbeat, rows_of
from tests.support.observed import LATE_AFTER, START, Closed, Passed, Report, beat, cut, gate_view, record_of, reports
from tests.support.seeds import batches
from tests.support.stream_queries import Ran, run
from tests.unit.projections_spark.test_stream_queries import endless

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm
FORGET_AFTER = timedelta(minutes=2)
MINUTE = timedelta(minutes=1)
COLUMNS = {"id": TEXT, "gate": TEXT, "time": TIME, "count": INTEGER, "before": TEXT, "all": JSON, "at": POINT}


def numbered(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    """How many rows of this gate came since it was quiet, with the row before; none for every third row."""
    count, before = state or (0, None)
    values = {"id": row.id, "gate": row.gate, "time": row.time, "count": count, "before": before, "at": (1, 2.5)}
    return (count + 1, row.id), [{**values, "all": [row.weight, row.source]}] if row.weight % 3 else []


def numbered_rows(passed: DataFrame) -> DataFrame:
    return in_order(passed, key="gate", step=numbered, columns=COLUMNS, forget_after="2m")


def ordered_view(**changes: Any) -> StreamView:
    return gate_view(**({"key": "id", "columns": COLUMNS, "query": numbered_rows, "final": True} | changes))


def reported() -> list[Report]:
    """Reports in the order of acceptance; some are late, some have the time of another one, some are sent twice."""
    chance, found = random.Random(2), reports(7, 150)
    same = [each._replace(number=1_000 + each.number) for each in found if chance.random() < 0.2]
    again = [
        report._replace(recorded=report.recorded + timedelta(seconds=chance.randrange(600)))
        for report in found
        if chance.random() < 0.3
    ]
    return sorted([*found, *same, *again], key=lambda report: report.recorded)


def expected(found: list[Report]) -> dict[str, dict[str, Any]]:
    by_gate = defaultdict[str, dict[tuple[datetime, str], Report]](dict)
    for each in found:
        if each.lateness <= LATE_AFTER:
            by_gate[each.gate][each.time, name(each)] = each
    rows = {}
    for gate, unique in by_gate.items():
        count, before = 0, None
        for time, id_ in sorted(unique):
            if before and time - before[0] > FORGET_AFTER:
                count, before = 0, None
            each = unique[time, id_]
            row = {"gate": gate, "time": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z", "count": count}
            row |= {"all": f'[{each.weight},"s{each.number % 3}"]', "at": {"lat": 1.0, "lon": 2.5}}
            if each.weight % 3:
                rows[id_] = row | ({"before": before[1]} if before else {})
            count, before = count + 1, (time, id_)
    return rows


def name(report: Report) -> str:
    return f"passed/s{report.number % 3}/{report.number}"


def ran(found: list[Report], parts: int, folder: Path, partitions: int, view: StreamView | None = None) -> Ran:
    last = max(report.recorded for report in found)
    quiet = [[beat(last + timedelta(hours=1, seconds=number))] for number in range(2)]
    records = cut([record_of(each) for each in found], random.Random(parts), parts)
    return run(view or ordered_view(), [*records, *quiet], folder, partitions)


def test_rows_do_not_depend_on_batches_or_on_the_order_of_arrival(tmp_path: Path) -> None:
    found = reported()
    rows = expected(found)
    assert max(row["count"] for row in rows.values()) > 3
    assert sum("before" not in row for row in rows.values()) > 4, "some states must be forgotten"
    for parts, partitions, order in ((1, 1, sorted(found, key=lambda each: each.time)), (batches(12), 2, found)):
        made = ran(order, parts, tmp_path / f"{parts}-{partitions}", partitions)
        assert made.rows == rows
        assert len(made.sent) == len(rows), "a row is sent once"
        assert made.dropped_by_watermark == 0
        assert len(set(made.batch_of.values())) > 1 or parts == 1


@pytest.mark.complete
def test_state_that_is_forgotten_is_removed(tmp_path: Path) -> None:
    last = START + timedelta(seconds=1)
    final = timedelta(minutes=12)
    quiet = [final + timedelta(seconds=9), final + timedelta(seconds=10), FORGET_AFTER + final + timedelta(seconds=9)]
    quiet = [*quiet, FORGET_AFTER + final + timedelta(seconds=10)]
    beats = [[beat(START + each)] for each in quiet]
    found = run(ordered_view(), [[record_of(Report(1, "a", 1, START, last))], *beats], tmp_path)
    assert list(found.batch_of.values()) == [2]
    assert found.state_rows == [1, 1, 1, 1, 0], "its window, its state, and nothing"


def fails(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    raise KeyError(f"gate\n{row.gate}")


def failing_rows(passed: DataFrame) -> DataFrame:
    return in_order(passed, key=("gate", "source"), step=fails, columns={"id": TEXT}, forget_after="1d")


@pytest.mark.complete
def test_what_a_step_raises_is_the_reason_of_the_failure(tmp_path: Path) -> None:
    view = ordered_view(query=failing_rows, columns={"id": TEXT})
    later = [[beat(START + timedelta(hours=1, seconds=number))] for number in range(2)]
    with pytest.raises(StreamingQueryException) as failed:
        run(view, [[record_of(Report(1, "a", 1, START, START))], *later], tmp_path)
    said = 'step "fails" failed at row "passed/s1/1": KeyError: \'gate\\na\''
    assert re.search(rf"{re.escape(said)} \(\S+/test_in_order_queries\.py:\d+\)$", reason(failed.value))


def without_time(passed: DataFrame) -> DataFrame:
    return numbered_rows(passed.drop("time"))


def of_decimals(passed: DataFrame) -> DataFrame:
    return numbered_rows(passed.selectExpr("*", "cast(weight as decimal(9, 2)) as exact"))


def of_no_names(passed: DataFrame) -> DataFrame:
    return numbered_rows(passed.selectExpr("*", "weight as `the weight`"))


def of_keywords(passed: DataFrame) -> DataFrame:
    return numbered_rows(passed.selectExpr("*", "weight as class"))


def of_unknown_key(passed: DataFrame) -> DataFrame:
    return in_order(passed, key="door", step=numbered, columns=COLUMNS, forget_after="2m")


def by_number(passed: DataFrame) -> DataFrame:
    rows = passed.selectExpr("*", "double(weight) as share")
    return in_order(rows, key="share", step=numbered, columns=COLUMNS, forget_after="2m")


def kept_for_ever(passed: DataFrame) -> DataFrame:
    return in_order(passed, key="gate", step=numbered, columns=COLUMNS, forget_after="ever")


def of_python_types(passed: DataFrame) -> DataFrame:
    columns: Any = {"id": str}
    return in_order(passed, key="gate", step=numbered, columns=columns, forget_after="1d")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"query": without_time}, 'in_order needs the columns "id" and "time" of the source: keep "time"'),
        ({"query": of_decimals}, 'cannot pass column "exact" of type decimal(9,2) to its step: cast it'),
        ({"query": of_no_names}, 'cannot pass column "the weight" to its step: rename it'),
        ({"query": of_keywords}, 'cannot pass column "class" to its step: rename it'),
        ({"query": of_unknown_key}, 'in_order has the key "door", but its rows have gate, weight,'),
        ({"query": by_number}, 'in_order cannot take column "share" as key: its type is FLOAT'),
        ({"query": kept_for_ever}, '"ever" is not a duration'),
        ({"query": of_python_types}, "column \"id\" of in_order has the type <class 'str'>"),
        ({"final": False}, "final=True"),
        ({"columns": COLUMNS | {"count": FLOAT}}, 'column "count" is declared FLOAT, but its query returns bigint'),
    ],
)
def test_a_query_that_cannot_work_is_named_before_anything_runs(changes: Any, problem: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        computed(ordered_view(**changes), lambda *_: endless())
    assert problem in str(refused.value)


NOT_CLOSED = pattern(Passed, within="3m", unless=Closed)


def left_open(rows: Sequence[Any]) -> dict[str, Any]:
    (passed,) = rows
    return {"id": passed.id, "gate": passed.gate, "weight": passed.weight}


def gates_left_open(reports: DataFrame) -> DataFrame:
    columns = {"id": TEXT, "gate": TEXT, "weight": INTEGER}
    return NOT_CLOSED.matches(reports, key="gate", row=left_open, columns=columns)


LEFT_OPEN = gate_view(
    name="left_open",
    key="id",
    columns={"id": TEXT, "gate": TEXT, "weight": INTEGER},
    sources={"reports": observations(Passed, Closed, late_after="10m")},
    query=gates_left_open,
    final=True,
)


class Seen(NamedTuple):
    """A gate that was passed, or closed: without a weight."""

    time: datetime
    gate: str
    weight: int | None

    @property
    def reported(self) -> Reported:
        data = Closed(gate=self.gate) if self.weight is None else Passed(gate=self.gate, weight=self.weight)
        return at(self.time, data)


def weights_left_open(seen: Sequence[Seen]) -> set[int | None]:
    """What Python finds in the order of time."""
    found = set[int | None]()
    for gate in "abcd":
        opened: Seen | None = None
        for each in sorted(report for report in seen if report.gate == gate):
            if opened and each.time - opened.time > timedelta(minutes=3):
                found.add(opened.weight)
                opened = None
            opened = None if each.weight is None else opened or each
        found |= {opened.weight} if opened else set()
    return found


@pytest.mark.complete
def test_what_has_not_come_in_time_is_reported_whatever_the_batches() -> None:
    """Also for a gate of which nothing else comes: heartbeats let its time pass."""
    chance = random.Random(3)
    seen = [
        Seen(START + timedelta(seconds=20 * number), gate, None if chance.random() < 0.3 else 10 * number + place)
        for number in range(40)
        for place, gate in enumerate("abcd")
        if chance.random() < 0.3
    ]
    expected, closed = weights_left_open(seen), heartbeat(START + timedelta(hours=2))
    assert 4 < len(expected) < len(seen) / 2
    shuffled = [each.reported for each in sorted(seen, key=lambda each: each.time + chance.random() * 4 * MINUTE)]
    assert {row["weight"] for row in rows_of(LEFT_OPEN, *shuffled, closed).values()} == expected
    check_any_order(LEFT_OPEN, *shuffled, heartbeat(START + timedelta(hours=1)), closed, tries=2)
