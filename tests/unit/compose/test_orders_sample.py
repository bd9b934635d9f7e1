"""The demo's orders: the rules themselves make what the check expects, and it finds whatever is otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headwater.compose.samples.orders import RECEIVED, SCARCE, Orders, Wish
from headwater.eventlog import topics
from headwater.eventlog.envelope import HEARTBEAT, decode
from tests.samples.checked import Happened
from tests.samples.orders import CheckedOrders, event_differences
from tests.support.process_world import World

Change = Callable[[list[Happened]], list[Happened]]
Played = tuple[CheckedOrders, list[Happened]]


@pytest.fixture(scope="module")
def played() -> Played:
    """The demo's commands, decided and followed up on in memory, and the events."""
    world, sample = World(random.Random(1)), CheckedOrders()
    for requests in sample.rounds():
        for request in requests:
            world.send(request.type, **request.body)
        world.some_steps(200, faults=False)
        world.settle()
    found = []
    for partition in range(world.log.partitions):
        for record in world.log.read(topics.EVENTS, partition, 0):
            event = decode(record.value or b"")
            if event.type != HEARTBEAT:
                found.append(Happened(event.stream, event.sequence, event.type, event.data or {}))
    return sample, found


def test_what_comes_of_the_orders_is_what_the_check_expects(played: Played) -> None:
    sample, happened = played
    assert list(event_differences(sample.wishes, happened)) == []
    kinds = [event.type for event in happened]
    scarce = sum(wish.paid and SCARCE in wish.skus for wish in sample.wishes.values())
    assert kinds.count("refund.requested") == scarce - RECEIVED[SCARCE] > 0
    assert kinds.count("order.confirmed") > 100
    assert {wish.called_off for wish in sample.wishes.values() if not wish.paid} == {True, False}


def last(events: list[Happened], kind: str) -> Happened:
    return max((event for event in events if event.type == kind), key=lambda event: event.sequence)


def without(kind: str) -> Change:
    return lambda events: [event for event in events if event is not last(events, kind)]


def doubled(kind: str) -> Change:
    return lambda events: [*events, last(events, kind)]


def with_data(kind: str, **data: object) -> Change:
    def change(events: list[Happened]) -> list[Happened]:
        changed = last(events, kind)
        return [*(event for event in events if event is not changed), changed._replace(data={**changed.data, **data})]

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: [], "ended with missing"),
        (without("order.confirmed"), "ended with order.paid, not order.confirmed"),
        (without("order.cancelled"), "ended with order.p"),
        (without("refund.requested"), "is 0 cents, not 1150"),
        (doubled("refund.requested"), "is 2300 cents, not 1150"),
        (with_data("refund.requested", amount_cents=1), "is 1 cents, not 1150"),
        (doubled("order.placed"), "has the versions [1, 1"),
        (with_data("stock.reservation_refused", available=5), "of saffron [5] are available, not 0"),
    ],
)
def test_the_check_finds_what_is_otherwise(played: Played, change: Change, says: str) -> None:
    sample, happened = played
    found = list(event_differences(sample.wishes, change(happened)))
    assert any(says in text for text in found), found


def test_more_is_confirmed_than_there_is() -> None:
    wishes = {f"o{n}": Wish(("tea", SCARCE), paid=True) for n in range(RECEIVED[SCARCE] + 1)}
    confirmed = [Happened(f"order/{name}", 1, "order.confirmed", {}) for name in wishes]
    assert f"{len(wishes)} orders with {SCARCE} are confirmed, not {RECEIVED[SCARCE]}" in event_differences(
        wishes, confirmed
    )


def test_what_make_run_loads_is_the_same_each_time() -> None:
    loaded = Orders().loading()
    assert loaded == Orders().loading()
    assert sum(map(len, loaded)) > 40
