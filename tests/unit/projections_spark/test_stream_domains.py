"""The stream views of the samples, on Spark: the rows that plain Python expects, whatever the batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import Row

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.compose.samples.observed import Report
from headwater.projections.kinds import stream_view
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.stream_queries.frames import AMENDING, DROPPED
from headwater.projections.stream.view import StreamView
from tests.samples.buses import BUS_DOMAIN
from tests.samples.checkouts import CHECKOUT_DOMAIN
from tests.samples.observed import Checked, Domain
from tests.samples.payments import PAYMENT_DOMAIN
from tests.samples.sensors import SENSOR_DOMAIN
from tests.samples.shop_floor import SHOP_FLOOR_DOMAIN
from tests.samples.ski_lifts import SKI_LIFT_DOMAIN
from tests.samples.stored_rows import differences
from tests.samples.web import WEB_DOMAIN
from tests.support.observed import beat, cut, raw
from tests.support.sample_entries import entry_of_report
from tests.support.seeds import examples, is_long, seed_of, some_of
from tests.support.stream_queries import Ran, run

pytestmark = pytest.mark.jvm

START = datetime(2026, 3, 1, 11, 58, tzinfo=UTC)
DAY = timedelta(days=1)
ROUNDS, SETTLED = 8, 4
"""Of traffic whose state is measured: after SETTLED of them it is as large as it ever is."""


class Case(NamedTuple):
    """A view under test. length: of its traffic."""

    domain: Domain
    checked: Checked
    length: timedelta

    @property
    def reports(self) -> list[Report]:
        return self.domain.traffic.reports(random.Random(11), START, self.length)


DOMAINS = {
    "buses": (BUS_DOMAIN, timedelta(minutes=90)),
    "shop_floor": (SHOP_FLOOR_DOMAIN, timedelta(minutes=20)),
    "checkouts": (CHECKOUT_DOMAIN, timedelta(minutes=40)),
    "payments": (PAYMENT_DOMAIN, timedelta(minutes=20)),
    "sensors": (SENSOR_DOMAIN, timedelta(minutes=5)),
    "ski_lifts": (SKI_LIFT_DOMAIN, timedelta(minutes=40)),
    "web": (WEB_DOMAIN, timedelta(hours=4)),
}
CASES = [Case(domain, checked, length) for domain, length in DOMAINS.values() for checked in domain.checked]
DECIDING = ("visits",)
"""Sessions; test_in_order_queries.py has steps in the order of time, and the complete suite a join of streams."""
WITH_STATE = [case for case in CASES if not case.checked.view.endswith("_late")]
REPLAYED = {case.checked.view for case in some_of(CASES, len(CASES) // 4, draw=71)}
"""Other ones in each run: that a batch has the rows of several is a matter of Spark more than of a view."""


@cache
def registered() -> tuple[ObservationRegistry, ViewRegistry]:
    return ObservationRegistry.load(list(DOMAINS)), ViewRegistry.load(list(DOMAINS))


def view_of(case: Case) -> StreamView:
    return stream_view(registered()[1].view(case.checked.view))


def records(reports: Sequence[Report]) -> list[Row]:
    """What the API would have appended."""

    def each() -> Iterator[Row]:
        for report in reports:
            entry = entry_of_report(registered()[0], report)
            yield raw(entry.key, entry.value, datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC))

    return list(each())


def ran(case: Case, parts: Sequence[Sequence[Row]], folder: Path, partitions: int) -> Ran:
    """Run the view's query over these batches; a day later, all its rows are final."""
    last = max(record.timestamp for part in parts for record in part)
    quiet = [[beat(last + DAY + timedelta(seconds=number))] for number in range(2)] if case.checked.final else []
    found = run(view_of(case), [*parts, *quiet], folder, partitions)
    assert found.dropped_by_watermark == 0, "Spark dropped what the rule admits"
    return found


def wrong(case: Case, reports: Sequence[Report], found: Ran) -> list[str]:
    """How the rows differ from those that Python expects of these reports."""
    return list(differences(case.checked.view, case.checked.rows(reports), found.left, "Python"))


@pytest.mark.soak
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case.checked.view in DECIDING else pytest.mark.complete, id=case.checked.view)
        for case in CASES
    ],
)
def test_rows_are_those_that_python_expects_whatever_the_order_and_the_batches(case: Case, tmp_path: Path) -> None:
    reports = case.reports
    ordered = sorted(reports, key=lambda report: report.time)
    assert [span.name for span in ordered] != [report.name for report in reports]
    live = ran(case, cut(records(reports), random.Random(seed_of(5)), examples(3)), tmp_path / "live", 2)
    assert wrong(case, reports, live) == []
    view = view_of(case)
    if view.name in REPLAYED:
        replayed = ran(case, [records(ordered)], tmp_path / "replayed", 1)
        assert (live.left, live.counts) == (replayed.left, replayed.counts)
    (limit,) = {view.admitted(source) for source in view.sources.values()}
    late = [report for report in reports if report.recorded - report.time > limit]
    of_late = any(source.is_of_late for source in view.sources.values())
    left = live.counts[AMENDING if of_late else DROPPED]
    assert left > 0, "the reports must include late ones"
    read = {kind for source in view.sources.values() for kind in source.types}
    assert left == sum(event.type in read for event in late)
    if case.checked.final:
        assert len(live.sent) == len(set(live.sent)), "a final row is sent once"
    else:
        assert live.counts[AMENDING] > 0 or view.late == "drop"


@pytest.mark.soak
@pytest.mark.complete
@pytest.mark.skipif(not is_long(), reason="`make soak` runs it")
@pytest.mark.parametrize("case", WITH_STATE, ids=lambda case: case.checked.view)
def test_state_does_not_grow_with_the_number_of_records(case: Case, tmp_path: Path) -> None:
    """The same traffic comes again and again, so long apart that the earlier one is forgotten or replaced."""
    view = view_of(case)
    apart = max(view.admitted(source) for source in view.sources.values()) + case.length + DAY
    rounds = [
        case.domain.traffic.reports(random.Random(11), START + number * apart, case.length) for number in range(ROUNDS)
    ]
    found = run(view, [records(reports) for reports in rounds], tmp_path)
    print(f"{view.name}: rows of the state after each {len(rounds[0]):,} observations: {found.state_rows}")
    assert found.dropped_by_watermark == 0
    assert 0 < found.state_rows[-1] <= max(found.state_rows[:SETTLED])


def test_every_stream_view_of_these_domains_is_tested() -> None:
    views = {name for name, view in registered()[1].views.items() if isinstance(view, StreamView)}
    assert views == {case.checked.view for case in CASES}
