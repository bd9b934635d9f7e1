"""The stream views of the sample `sales`, on Spark: the rows that plain Python expects, whatever the batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import Row

from headwater.commands.declaring.aggregate import Event
from headwater.compose.samples.sales import Fact, facts
from headwater.projections.kinds import stream_view
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.stream_queries.frames import AMENDING, DROPPED
from headwater.projections.stream.view import StreamView
from headwater.samples.sales.views import with_tier
from tests.samples.sales import late_for_minutes, late_for_taxes, per_minute, taxed, tiers
from tests.samples.stored_rows import Rows, differences
from tests.support.gate_events import owner_s_beat, raw_event
from tests.support.observed import cut
from tests.support.sample_entries import entry_of_fact
from tests.support.seeds import examples, is_long, seed_of, some_of
from tests.support.stream_queries import Ran, run, stored_state

pytestmark = pytest.mark.jvm

START = datetime(2026, 3, 1, 11, 58, tzinfo=UTC)
ROUNDS, SETTLED = 8, 4
"""Of the same events again, whose state is measured: after SETTLED of them it is as large as it ever is."""
EXPECTED: dict[str, Callable[[Sequence[Fact]], Rows]] = {
    "taxed_sales": taxed,
    "membership_tiers": tiers,
    "sales_per_minute": per_minute,
    "taxed_sales_late": late_for_taxes,
    "sales_per_minute_late": late_for_minutes,
}
REPLAYED = some_of(list(EXPECTED), 2, draw=72)


@cache
def registry() -> ViewRegistry:
    return ViewRegistry.load(["sales"])


def view_of(name: str) -> StreamView:
    return stream_view(registry().view(name))


def record_of(fact: Fact) -> Row:
    """What a handler would have appended."""
    entry = entry_of_fact(fact)
    return raw_event(entry.key, entry.value, fact.time)


def records_of(facts: Iterable[Fact]) -> list[Row]:
    return [record_of(fact) for fact in facts]


def ran(view: StreamView, parts: Sequence[Sequence[Row]], folder: Path, partitions: int) -> Ran:
    """Run the view's query over these batches; a day later, all its rows are final."""
    found = run(view, [*parts, *(quiet(parts) if view.final else [])], folder, partitions)
    assert found.dropped_by_watermark == 0, "Spark dropped what the rule admits"
    return found


def quiet(parts: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Two batches with heartbeats, a day after these."""
    last = max(record.timestamp for part in parts for record in part)
    return [[owner_s_beat(last + timedelta(days=1, seconds=number))] for number in range(2)]


@pytest.mark.complete
@pytest.mark.soak
@pytest.mark.parametrize("name", EXPECTED)
def test_rows_are_those_that_python_expects_whatever_the_order_and_the_batches(name: str, tmp_path: Path) -> None:
    happened = facts(random.Random(11), START, timedelta(minutes=40))
    view = view_of(name)
    records = records_of(happened)
    live = ran(view, cut(records, random.Random(seed_of(5)), examples(4)), tmp_path / "live", 2)
    assert list(differences(name, EXPECTED[name](happened), live.rows, "Python")) == []
    of_late = any(source.is_of_late for source in view.sources.values())
    left = live.counts[AMENDING if of_late or view.late == "amend" else DROPPED]
    assert left > 0, "the events must include late ones"
    if view.final:
        assert len(live.sent) == len(set(live.sent)), "a final row is sent once"
    if name in REPLAYED:
        ordered = records_of(sorted(happened, key=lambda each: each.time))
        replayed = ran(view, [ordered], tmp_path / "replayed", 1)
        assert (live.rows, live.counts) == (replayed.rows, replayed.counts)
        assert len(replayed.sent) == len(set(replayed.sent)), "a batch has one row per key"


def rounds_of(view: StreamView) -> list[list[Fact]]:
    """The same events again and again, so long apart that what is kept for a time is removed."""
    length = timedelta(minutes=20)
    apart = max(view.admitted(source) for source in view.sources.values()) + length + timedelta(days=2)
    return [facts(random.Random(11), START + number * apart, length) for number in range(ROUNDS)]


def taken_in(view: StreamView, happened: Sequence[Fact]) -> list[Fact]:
    """Those that are not left out as late."""
    (limit,) = {view.admitted(source) for source in view.sources.values()}
    return [report for report in happened if report.recorded - report.time <= limit]


@pytest.mark.soak
@pytest.mark.complete
@pytest.mark.skipif(not is_long(), reason="`make soak` runs it")
def test_state_of_sales_per_minute_does_not_grow_with_the_number_of_sales(tmp_path: Path) -> None:
    view = view_of("sales_per_minute")
    rounds = rounds_of(view)
    found = run(view, [records_of(happened) for happened in rounds], tmp_path)
    sales = sum(event.type == "sale.made" for event in rounds[0])
    print(f"{view.name}: rows of the state after each {sales} sales: {found.state_rows}")
    assert found.dropped_by_watermark == 0
    assert 0 < found.state_rows[-1] <= max(found.state_rows[:SETTLED])


@pytest.mark.soak
@pytest.mark.complete
@pytest.mark.skipif(not is_long(), reason="`make soak` runs it")
def test_state_of_taxed_sales_is_a_row_per_change_of_a_rate_and_per_customer_with_a_tier(tmp_path: Path) -> None:
    """When all rows are final; until then also what they need."""
    view = view_of("taxed_sales")
    rounds = rounds_of(view)
    known = taken_in(view, rounds[0])
    rates = sum(event.type == "tax_rate.changed" for event in known)
    customers = len({event.data["customer"] for event in known if event.type == "membership.tier_changed"})
    sales = sum(event.type == "sale.made" for event in known)
    assert sales > 2 * rates > 0
    batches = [records_of(happened) for happened in rounds]
    found = run(view, [part for batch in batches for part in (batch, *quiet([batch]))], tmp_path)
    print(f"{view.name}: rows of the state after each {sales} sales and {rates} changes: {found.state_rows}")
    assert found.dropped_by_watermark == 0
    assert found.state_rows[2::3] == [number * rates + customers for number in range(1, ROUNDS + 1)]


@pytest.mark.soak
@pytest.mark.complete
@pytest.mark.skipif(not is_long(), reason="`make soak` runs it")
def test_state_of_membership_tiers_is_a_row_per_customer_that_grows_with_each_change(tmp_path: Path) -> None:
    view = view_of("membership_tiers")
    rounds = rounds_of(view)
    found = run(view, [records_of(happened) for happened in rounds], tmp_path)
    changes = [event for event in taken_in(view, rounds[0]) if "tier" in event.data]
    customers = len({change.data["customer"] for change in changes})
    assert found.state_rows == [customers] * ROUNDS
    batches = [stored_state(tmp_path, batch=number).collect() for number in range(ROUNDS)]
    sizes = [sum(len(row.value.buf) for row in rows) for rows in batches]
    print(f"{view.name}: bytes of the state after each {len(changes)} changes: {sizes}")
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < 1.05 * min(grown), "nothing is forgotten, and each change costs the same"
    assert 20 < min(grown) / len(changes) < 100


@pytest.mark.parametrize("order", [(9, 10, 11), (10, 11, 9), (11, 9, 10)])
def test_of_changes_at_the_same_time_the_last_one_in_the_stream_counts(order: Sequence[int]) -> None:
    known, tier_of = None, {9: "gold", 10: "basic", 11: "silver"}
    for sequence in order:
        known, rows = with_tier(known, SimpleNamespace(time=START, sequence=sequence, tier=tier_of[sequence]))
        assert rows == []
    sold = {"sale_id": "S1", "customer": "Ada", "country": "AT", "category": "books", "cents": 1}
    _, (row,) = with_tier(known, SimpleNamespace(time=START, sequence=None, tier=None, basis_points=None, **sold))
    assert row == {**sold, "made_at": START, "tier": "silver", "basis_points": None, "tax_cents": None}


def test_the_events_include_what_is_hard() -> None:
    happened = facts(random.Random(11), START, timedelta(minutes=40))
    rows = taxed(happened)
    assert {row["tier"] for row in rows.values()} == {None, "basic", "silver", "gold"}
    assert None in {row["basis_points"] for row in rows.values()}
    changes = [event for event in happened if event.type != "sale.made"]
    assert len({(change.stream, change.time) for change in changes}) < len(changes), "two changes at the same time"
    for dimension in ("customer", "country"):
        sold_at = {(event.data[dimension], event.time) for event in happened if event.type == "sale.made"}
        changed_at = {(change.data.get(dimension), change.time) for change in changes}
        assert sold_at & changed_at, "a sale and a change at the same time"


def test_every_stream_view_of_the_domain_is_tested() -> None:
    assert {view.name for view in registry().of_kind(StreamView)} == set(EXPECTED)


def test_the_classes_are_those_of_the_events() -> None:
    kinds: set[type[Event]] = {kind for view in registry().of_kind(StreamView) for kind in view.classes}
    assert {kind.type for kind in kinds} == {fact.type for fact in facts(random.Random(1), START, timedelta(hours=1))}
