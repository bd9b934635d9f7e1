"""From payment to dispatch across three aggregates, in any order of work, through crashes and redelivery."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import testing
from headwater.commands.declaring.process import TimedOut
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode
from headwater.eventlog.ports import NEXT_OFFSET, PROCESSES, Record
from headwater.samples.orders.domain import order, stock
from headwater.samples.orders.domain.order import Order
from headwater.samples.orders.domain.refund import Refund
from headwater.samples.orders.domain.stock import Stock
from headwater.samples.orders.processes import PAY_WITHIN, Fulfilment, order_fulfilment
from tests.support.process_world import World
from tests.support.seeds import examples

SKUS = ("tea", "milk", "salt")


def lines(*wanted: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"sku": sku, "quantity": quantity, "unit_cents": 5} for sku, quantity in wanted]


def place(world: World, order_id: str, *wanted: tuple[str, int]) -> None:
    world.send("order.place", order_id=order_id, customer="Ada", lines=lines(*wanted))


def pay(world: World, order_id: str, *wanted: tuple[str, int]) -> None:
    world.send("order.pay", order_id=order_id, amount_cents=5 * sum(quantity for _, quantity in wanted))


def stocked(*stock: tuple[str, int]) -> World:
    world = World(random.Random(1))
    for sku, quantity in stock:
        world.send("stock.receive", sku=sku, quantity=quantity)
    return world


def test_a_paid_order_is_confirmed_and_when_it_ships_its_stock_leaves() -> None:
    world = stocked(("tea", 5), ("milk", 2))
    place(world, "O", ("tea", 3), ("milk", 2))
    world.settle()
    pay(world, "O", ("tea", 3), ("milk", 2))
    world.settle()
    states = world.states()
    assert states["order/O"].status == "confirmed"
    assert states["stock/tea"] == Stock(available=2, reserved={"O": 3})
    world.send("order.ship", order_id="O")
    world.settle()
    assert world.states()["stock/tea"] == Stock(available=2)
    assert world.instances() == []


def test_a_failed_reservation_cancels_and_refunds_and_gives_the_rest_back() -> None:
    world = stocked(("tea", 5), ("milk", 1))
    place(world, "O", ("tea", 3), ("milk", 2), ("salt", 1))
    pay(world, "O", ("tea", 3), ("milk", 2), ("salt", 1))
    world.settle()
    states = world.states()
    assert states["order/O"].status == "cancelled"
    assert states["refund/O"] == Refund(status="requested", customer="Ada", amount_cents=30)
    assert states["stock/tea"] == Stock(available=5)
    assert world.instances() == []


def test_an_unpaid_order_expires_though_everybody_was_restarted() -> None:
    world = stocked()
    place(world, "O", ("tea", 1))
    world.settle()
    world.wait(PAY_WITHIN - timedelta(seconds=1))
    world.some_steps(60)
    world.settle()
    assert world.states()["order/O"].status == "placed"
    world.wait(timedelta(seconds=1))
    world.some_steps(60)
    world.settle()
    assert world.states()["order/O"].status == "expired"
    assert world.instances() == []


def test_an_order_that_is_paid_in_the_last_moment_does_not_expire() -> None:
    world = stocked(("tea", 1))
    place(world, "O", ("tea", 1))
    world.settle()
    world.wait(PAY_WITHIN)
    pay(world, "O", ("tea", 1))
    world.settle()
    assert world.states()["order/O"].status == "confirmed"


def test_the_follow_up_commands_carry_on_what_they_follow_from() -> None:
    world = stocked(("tea", 1))
    place(world, "O", ("tea", 1))
    pay(world, "O", ("tea", 1))
    world.settle()
    events = {envelope.id: envelope for envelope in world.events()}
    paid, confirmed = events["order/O/2"], events["order/O/3"]
    records = [r for p in range(world.log.partitions) for r in world.log.read(topics.COMMANDS, p, 0)]
    reserve = next(decode(record.value) for record in records if decode(record.value).type == "stock.reserve")
    assert reserve.id == "order_fulfilment:order/O/2:0"
    assert (reserve.causation_id, reserve.correlation_id) == (paid.id, paid.correlation_id)
    reserved = events["stock/tea/2"]
    assert (reserve.actor, reserved.actor) == ("process:order_fulfilment", "process:order_fulfilment")
    assert (reserved.causation_id, reserved.correlation_id) == (reserve.id, paid.correlation_id)
    assert confirmed.correlation_id == paid.correlation_id
    assert confirmed.causation_id == f"order_fulfilment:{reserved.id}:0"


@pytest.mark.parametrize("restarted", [False, True])
def test_redelivered_events_change_nothing_and_send_no_second_command(restarted: bool) -> None:
    world = stocked(("tea", 5), ("milk", 2))
    place(world, "O", ("tea", 3), ("milk", 2))
    pay(world, "O", ("tea", 3), ("milk", 2))
    world.settle()
    assert world.instances() == ["order_fulfilment/O"]
    before = {topic: kept(world, topic) for topic in (topics.INBOX, topics.COMMANDS, topics.PROCESSES)}
    world.redeliver()
    for partition in range(world.log.partitions) if restarted else ():
        world.restart(PROCESSES, partition)
    world.settle()
    assert len(kept(world, topics.INBOX)) == 2 * len(before[topics.INBOX])
    for topic in (topics.COMMANDS, topics.PROCESSES):
        assert kept(world, topic) == before[topic]


def kept(world: World, topic: str) -> list[Record]:
    records = [partition for p in range(world.log.partitions) for partition in world.log.read(topic, p, 0)]
    return [record for record in records if record.key != NEXT_OFFSET]


some_lines = st.dictionaries(st.sampled_from(SKUS), st.integers(1, 4), min_size=1).map(lambda some: [*some.items()])
some_orders = st.lists(some_lines, min_size=1, max_size=4)
action = st.sampled_from(["pay", "pay", "ship", "cancel", "wait", "receive"])
some_actions = st.lists(st.tuples(action, st.integers(0, 3)), max_size=14)


@given(some_orders, some_actions, st.integers(0, 2**32))
@settings(max_examples=examples(30), deadline=None)
def test_whatever_happens_in_whatever_order_all_adds_up_in_the_end(
    orders: list[list[tuple[str, int]]], actions: list[tuple[str, int]], seed: int
) -> None:
    world = World(random.Random(seed))
    world.send("stock.receive", sku="tea", quantity=3)
    for number, wanted in enumerate(orders):
        place(world, f"O{number}", *wanted)
        world.some_steps(5)
    for action, drawn in actions:
        number = drawn % len(orders)
        match action:
            case "pay":
                pay(world, f"O{number}", *orders[number])
            case "receive":
                world.send("stock.receive", sku=SKUS[number % len(SKUS)], quantity=2)
            case "wait":
                world.wait(timedelta(minutes=13))
            case "ship":
                world.send("order.ship", order_id=f"O{number}")
            case "cancel":
                world.send("order.cancel", order_id=f"O{number}", reason="changed my mind")
        world.some_steps(8)
    world.settle()
    check(world)
    before = world.events()
    world.redeliver()
    world.some_steps(20)
    world.settle()
    assert world.events() == before, "redelivery changed something"
    world.wait(PAY_WITHIN)
    world.settle()
    check(world)
    unpaid = [state for state in orders_of(world).values() if state.status == "placed"]
    assert unpaid == []


def orders_of(world: World) -> dict[str, Order]:
    return {stream.partition("/")[2]: state for stream, state in world.states().items() if stream.startswith("order/")}


def check(world: World) -> None:
    """What must hold whenever nothing is left to do."""
    states = world.states()
    stocks: dict[str, Stock] = {k.partition("/")[2]: state for k, state in states.items() if k.startswith("stock/")}
    dispatched = [envelope.data for envelope in world.events() if envelope.type == "stock.dispatched"]
    received = [envelope.data for envelope in world.events() if envelope.type == "stock.received"]
    for sku, held in stocks.items():
        came = sum(data["quantity"] for data in received if data["sku"] == sku)
        left = sum(data["quantity"] for data in dispatched if data["sku"] == sku)
        assert came == left + held.available + sum(held.reserved.values())
        assert held.available >= 0
    for order_id, state in orders_of(world).items():
        kept = {sku: held.reserved[order_id] for sku, held in stocks.items() if order_id in held.reserved}
        wanted = {line.sku: line.quantity for line in state.lines}
        assert kept == (wanted if state.status == "confirmed" else {}), state.status
        assert state.status != "paid", "its reservations were all answered"
        refund = states.get(f"refund/{order_id}")
        owed = state.paid_cents if state.status == "cancelled" else 0
        assert (refund.amount_cents if refund else 0) == owed
        assert {d["sku"]: d["quantity"] for d in dispatched if d["order_id"] == order_id} == (
            wanted if state.status == "shipped" else {}
        )
    assert set(world.outcomes()) <= {"accepted", "rejected"}


@pytest.mark.parametrize("status", ["awaiting_payment", "confirming", "failing"])
def test_a_refusal_that_comes_late_does_nothing(status: str) -> None:
    state = Fulfilment.model_validate({"status": status})
    refused = stock.ReservationRefused(sku="tea", order_id="O", quantity=2, available=1)
    assert order_fulfilment.react(refused, state).commands == ()


def test_a_timer_asks_for_expiry_and_the_order_decides() -> None:
    placed = order.Placed(order_id="O", customer="Ada", lines=(), total_cents=0)
    asked = testing.given(order_fulfilment, placed).when(TimedOut("unpaid")).then(order.Expire(order_id="O"))
    assert not asked.ended
