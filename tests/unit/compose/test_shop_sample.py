"""The demo's shop: the rules and the view make of its payments what the check expects, which finds all else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from headwater import Event
from headwater.commands.codec import read_command
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.samples.sample import Request
from headwater.compose.samples.shop import Shop
from headwater.samples.shop.domain.payment import Payment, payment
from headwater.samples.shop.source import Customer
from headwater.samples.shop.views import customer_360
from headwater.testing import rows_of
from tests.samples.shop import PAYMENTS, ROUNDS, CheckedShop, with_payments
from tests.samples.stored_rows import differences

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of an event in `rows_of`."""


def decided(requests: list[Request]) -> list[Event]:
    """The events of these commands; raises Rejected if a rule refuses one."""
    kinds, states, events = CommandRegistry.load(["shop"]), dict[str, Payment](), list[Event]()
    for request in requests:
        typed = read_command(kinds.command(request.type), request.body)
        state = states.get(typed.stream, payment.initial)
        for event in payment.decide(typed.command, state):
            state = payment.evolve(state, event)
            events.append(event)
        states[typed.stream] = state
    return events


def customer(key: str) -> Customer:
    return Customer(
        id=int(key),
        public_id=UUID(int=int(key)),
        name=f"Ada {key}",
        email=f"{key}@example.com",
        phone=None,
        born_on=None,
        credit_limit=None,
        is_business=False,
        interests=[],
        preferences={},
        created_at=START,
        changed_at=START,
    )


def test_what_comes_of_the_payments_is_what_the_check_expects() -> None:
    sample = CheckedShop()
    sample.customers = [str(n) for n in range(1, 101)]
    events = decided([request for requests in sample.rounds() for request in requests])
    kinds = [event.type for event in events]
    assert kinds.count("payment.received") == ROUNDS * PAYMENTS
    assert kinds.count("payment.refunded") > PAYMENTS / 10
    shown = rows_of(customer_360, *map(customer, sample.customers), *events)
    expected = with_payments({key: {} for key in shown}, sample._payments, dict.fromkeys(sample._payments, START))
    assert len(shown) > 90
    assert list(differences("customer_360", expected, shown, "SQL")) == []


def test_a_refund_and_its_payment_are_in_different_rounds() -> None:
    sample = CheckedShop()
    sample.customers = ["1"]
    for requests in sample.rounds():
        names = [request.body["payment_id"] for request in requests]
        assert len(names) == len(set(names))


def test_a_customer_without_payments() -> None:
    expected = with_payments({"1": {"name": "Ada"}}, {}, {})
    assert expected == {"1": {"name": "Ada", "payments": 0, "paid_cents": 0, "last_payment_at": None}}


def test_what_make_run_loads_is_the_same_each_time_and_accepted() -> None:
    loaded = Shop().loading()
    assert loaded == Shop().loading()
    events = decided([request for requests in loaded for request in requests])
    assert len(events) == sum(map(len, loaded)) > 20
    assert rows_of(customer_360, customer("1"), *events)["1"]["payments"] == 2


ROW: dict[str, Any] = {"name": "Ada", "payments": 1, "weight": 0.1, "labels": ["a", "b"], "at": START, "limit": None}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"at": "2026-01-01T00:00:00.000Z"},
        {"labels": '["a","b"]'},
        {"weight": 0.1 + 1e-15},
    ],
)
def test_a_store_may_have_a_value_in_another_form(stored: dict[str, Any]) -> None:
    assert list(differences("v", {"1": ROW}, {"1": ROW | stored}, "SQL")) == []


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({}, "v/1 is missing"),
        ({"1": ROW, "2": ROW}, "v/2 should not be there"),
        ({"1": ROW | {"name": "Bo"}}, "v/1 has name 'Bo', SQL says 'Ada'"),
        ({"1": ROW | {"payments": None}}, "v/1 has payments None, SQL says 1"),
        ({"1": ROW | {"labels": '["b","a"]'}}, """v/1 has labels '["b","a"]', SQL says ['a', 'b']"""),
        ({"1": ROW | {"at": "2026-01-01T00:00:00.001Z"}}, "v/1 has at '2026-01-01T00:00:00.001Z', SQL says"),
        ({"1": ROW | {"weight": 0.2}}, "v/1 has weight 0.2, SQL says 0.1"),
        ({"1": ROW | {"limit": "0"}}, "v/1 has limit '0', SQL says None"),
    ],
)
def test_the_check_finds_what_is_otherwise(stored: dict[str, dict[str, Any]], says: str) -> None:
    (found,) = differences("v", {"1": ROW}, stored, "SQL")
    assert found.startswith(says)
