"""What the sample `sales` expects, at the edges of its rules, and what it sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.commands.codec import read_command
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.samples.sales import Fact, Sales
from tests.samples.sales import CheckedSales, late_for_minutes, late_for_taxes, per_category, per_minute, taxed, tiers

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float, kind: str, stream: str, sequence: int = 1, late_s: float = 0, **data: Any) -> Fact:
    time = START + timedelta(seconds=seconds)
    return Fact(stream, sequence, kind, time, time + timedelta(seconds=late_s), data)


def sold(seconds: float, cents: int = 10, late_s: float = 0, **data: Any) -> Fact:
    sale: dict[str, Any] = {
        "sale_id": f"{seconds}",
        "customer": "Ada",
        "country": "AT",
        "category": "books",
        "cents": cents,
    }
    return at(seconds, "sale.made", f"sale/{seconds}", 1, late_s, **(sale | data))


def tier(seconds: float, sequence: int, name: str, late_s: float = 0) -> Fact:
    return at(seconds, "membership.tier_changed", "membership/Ada", sequence, late_s, customer="Ada", tier=name)


def rate(seconds: float, sequence: int, basis_points: int) -> Fact:
    data: dict[str, Any] = {"country": "AT", "basis_points": basis_points}
    return at(seconds, "tax_rate.changed", "tax_rate/AT", sequence, **data)


def test_a_sale_has_what_was_valid_at_its_time() -> None:
    changes = [tier(5, 9, "silver"), tier(5, 10, "gold"), rate(5, 1, 2_000), tier(9, 11, "basic"), rate(8, 2, 0)]
    rows = taxed([*changes, sold(4.999), sold(5), sold(8.5), sold(9)])
    assert [(row["tier"], row["basis_points"]) for row in rows.values()] == [
        (None, None),
        ("gold", 2_000),
        ("gold", 0),
        ("basic", 0),
    ]


@pytest.mark.parametrize(("cents", "basis_points", "tax"), [(1, 5_000, 1), (1, 4_999, 0), (250, 1_000, 25), (7, 0, 0)])
def test_half_a_cent_of_tax_is_a_cent(cents: int, basis_points: int, tax: int) -> None:
    (row,) = taxed([rate(0, 1, basis_points), sold(1, cents)]).values()
    assert row["tax_cents"] == tax


def test_what_is_over_a_minute_late_counts_for_nothing_and_is_kept() -> None:
    facts = [tier(0, 1, "gold"), tier(1, 2, "basic", late_s=60.001), sold(2, late_s=60), sold(3, late_s=60.001)]
    assert {key: row["tier"] for key, row in taxed(facts).items()} == {"2": "gold"}
    assert {*late_for_taxes(facts)} == {"membership/Ada/2", "sale/3/1"}
    assert late_for_taxes(facts)["sale/3/1"]["late_s"] == 60.001
    assert late_for_minutes([*facts, sold(4, late_s=300), sold(5, late_s=300.001)]).keys() == {"sale/5/1"}


def test_intervals_meet_and_the_present_one_is_open() -> None:
    found = tiers([tier(0, 1, "basic"), tier(5, 2, "silver"), tier(5, 3, "gold"), tier(3, 4, "basic", late_s=600)])
    second = timedelta(seconds=1)
    assert [(row["tier"], row["valid_from"], row["valid_to"]) for row in found.values()] == [
        ("basic", START, START + 3 * second),
        ("basic", START + 3 * second, START + 5 * second),
        ("gold", START + 5 * second, None),
    ]


def test_sums_per_category_and_minute() -> None:
    facts = [sold(0, 10), sold(59.999, 20), sold(60, 30, customer="Bob"), sold(61, 3, category="tools", late_s=301)]
    assert per_category(facts) == {
        "books": {"sales": 3, "cents": 60, "average_cents": 20.0},
        "tools": {"sales": 1, "cents": 3, "average_cents": 3.0},
    }
    assert {key: (row["sales"], row["cents"]) for key, row in per_minute(facts).items()} == {
        "Ada/2026-03-01T12:00:00.000Z": (2, 30),
        "Bob/2026-03-01T12:01:00.000Z": (1, 30),
    }


def test_its_commands_can_be_read_and_are_the_same_each_time() -> None:
    registry, sample = CommandRegistry.load(["sales"]), CheckedSales()
    requests = [request for round_ in sample.rounds() for request in round_]
    for each in requests:
        read_command(registry.command(each.type), each.body)
    assert sum(request.type == "sale.make" for request in requests) == sample.number > 100
    assert {request.type for request in requests} == {"sale.make", "membership.change_tier", "tax_rate.change"}
    assert [request for round_ in Sales().loading() for request in round_] == requests


def test_a_sale_without_its_event_is_found() -> None:
    sample = CheckedSales()
    made = [
        at(0, "sale.made", f"sale/{event.body['sale_id']}", **event.body)
        for round_ in sample.rounds()
        for event in round_
        if event.type == "sale.make"
    ]
    assert list(sample._missing(made)) == []
    assert [text.endswith("was sent") for text in sample._missing(made[1:])] == [True]
    changed = made[0]._replace(data={**made[0].data, "cents": 5_000_000})
    assert len(list(sample._missing([changed, *made[1:], sold(0)]))) == 2
