"""A process learns which of its commands changed nothing, once each, and what they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Command
from headwater.commands.declaring.process import Process, Reaction, Refused
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.refusals import refusals, return_address
from headwater.commands.receipt import Receipt, ReceiptError, key_of, reuse_key
from headwater.eventlog import topics
from headwater.eventlog.envelope import CLIENT, Envelope, decode, encode, format_time, timestamp_ms
from headwater.eventlog.ports import HANDLER, PROCESSES, ROUTER, Entry, Record
from headwater.eventlog.settings import LogSettings
from headwater.replay.retry import Resender
from headwater.samples.orders.domain import order, stock
from headwater.samples.orders.processes import Fulfilment, order_fulfilment
from tests.support.domains import SHIPPED
from tests.support.process_world import World
from tests.support.seeds import seed_of

LINES = [{"sku": "tea", "quantity": 1, "unit_cents": 5}]


class Told(BaseModel):
    model_config = ConfigDict(frozen=True)
    refused: tuple[str, ...] = ()


def sending(*commands: Command, ends: bool = False) -> Process[Told]:
    def react(event: order.Placed | Refused, state: Told) -> Reaction[Told]:
        if isinstance(event, order.Placed):
            return Reaction(state, commands, ended=ends)
        found = f"{event.outcome} {event.code}: {event.command!r}"
        return Reaction(Told(refused=(*state.refused, found)))

    return Process(name="sending", key="order_id", initial=Told(), starts=(order.Placed,), react=react)


def placed(world: World, order_id: str = "O/1 ü") -> None:
    world.send("order.place", order_id=order_id, customer="Ada", lines=LINES)
    world.settle()


def told(world: World, order_id: str = "O/1 ü") -> list[str] | None:
    instance = world.instance(f"sending/{order_id}")
    return None if instance is None else instance["state"]["refused"]


ship, pay = order.Ship(order_id="O/1 ü"), order.Pay(order_id="O/1 ü", amount_cents=5)
pay_wrong, receive = order.Pay(order_id="O/1 ü", amount_cents=6), stock.Receive(sku="tea", quantity=1)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_rejected_command_comes_back_with_its_code_and_an_accepted_one_does_not(partitions: int) -> None:
    world = World(random.Random(1), partitions)
    world.deploy(sending(ship, receive, pay_wrong, pay))
    placed(world)
    assert told(world) == [f"rejected not_confirmed: {ship!r}", f"rejected wrong_amount: {pay_wrong!r}"]
    assert not world.letters()


def test_a_command_that_no_aggregate_takes_here_stops_the_instance_that_sent_it() -> None:
    world = World(random.Random(1))
    known = world.commands
    world.deploy(sending(stock.Release(sku="tea", order_id="O")))
    world.commands = CommandRegistry(
        [("m", aggregate) for name, aggregate in known.aggregates.items() if name != "stock"]
    )
    world.restart_all()
    placed(world)
    assert told(world) == []
    unread, stopped = world.letters().values()
    assert "stock.release" in unread.reason
    assert "stock.release" in stopped.reason
    world.deploy(sending(), commands=known)
    key, letter = list(world.letters().items())[1]
    Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    world.settle()
    released = stock.Release(sku="tea", order_id="O")
    assert told(world) == [f"failed unreadable_command: {released!r}"]


def test_a_refusal_is_heard_of_after_commands_was_made_again_with_lower_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(sending(ship))
    placed(world)
    assert told(world) == [f"rejected not_confirmed: {ship!r}"]
    del world.log._records[topics.COMMANDS, 0]
    monkeypatch.setattr(world.log, "incarnation", lambda topic: f"new/{topic}")
    world.log.own(0, HANDLER).begin().commit(0)
    world.restart_all()
    again = Envelope(
        "again",
        "order.ship",
        "order/O/1 ü",
        world.now,
        {"order_id": "O/1 ü"},
        source=return_address("sending", "O/1 ü"),
    )
    world.log.submit(Entry(topics.COMMANDS, again.stream, encode(again), timestamp_ms(world.now)), 0)
    world.settle()
    assert told(world) == [f"rejected not_confirmed: {ship!r}"] * 2


def test_each_is_heard_of_once_through_faults_restarts_and_redelivery() -> None:
    for number in range(12):
        world = World(random.Random(seed_of(number)), partitions=2)
        world.deploy(sending(ship, pay_wrong))
        world.send("order.place", order_id="O/1 ü", customer="Ada", lines=LINES)
        world.some_steps(60)
        world.redeliver()
        world.some_steps(30)
        world.settle()
        assert told(world) == [f"rejected not_confirmed: {ship!r}", f"rejected wrong_amount: {pay_wrong!r}"]


def test_a_process_that_does_not_ask_and_one_that_has_ended_are_not_told() -> None:
    def react(event: order.Placed, state: Told) -> Reaction[Told]:
        return Reaction(state, [ship])

    world = World(random.Random(1))
    deaf: Process[Told] = Process(name="deaf", key="order_id", initial=Told(), starts=(order.Placed,), react=react)
    world.deploy(deaf, sending(ship, ends=True))
    placed(world)
    assert world.instances() == ["deaf/O/1 ü"]
    inbox = [decode(r.value) for p in range(3) for r in world.log.read(topics.INBOX, p, 0)]
    assert sorted(event.type for event in inbox) == ["headwater.refused", "order.placed", "order.placed"]
    assert not world.letters()


ID = "sending:order/O/1 ü/1:0"
"""Of the command that `sending` sends for the order."""
SQUATTERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "of another stream": ("stock.receive", "stock/tea", {"sku": "tea", "quantity": 1}),
    "of its stream": ("order.pay", "order/O/1 ü", {"order_id": "O/1 ü", "amount_cents": 6}),
    "the same command": ("order.ship", "order/O/1 ü", {"order_id": "O/1 ü"}),
}


@pytest.mark.parametrize("together", [False, True], ids=["earlier", "in the same transaction"])
@pytest.mark.parametrize(
    ("squatter", "origin"),
    [*((each, CLIENT) for each in SQUATTERS), ("of another stream", None), ("of its stream", None)],
)
def test_a_client_that_took_the_id_of_a_process_s_command_changes_nothing_for_the_process(
    together: bool, squatter: str, origin: str | None
) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(sending(ship))
    world.send("order.place", order_id="O/1 ü", customer="Ada", lines=LINES)
    world.step(HANDLER, 0, 100)
    world.step(ROUTER, 0, 100)
    kind, stream, body = SQUATTERS[squatter]
    taken = Envelope(ID, kind, stream, world.now, body, f"/headwater/{kind.partition('.')[0]}", origin=origin)
    world.log.submit(Entry(topics.COMMANDS, stream, encode(taken), timestamp_ms(world.now)), 0)
    if not together:
        world.step(HANDLER, 0, 100)
    world.step(PROCESSES, 0, 100)
    world.settle()
    assert told(world) == [f"rejected not_confirmed: {ship!r}"]
    world.redeliver()
    world.settle()
    assert told(world) == [f"rejected not_confirmed: {ship!r}"]


def test_a_refusal_is_about_what_was_sent_and_names_its_command_as_the_cause() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(sending(ship))
    placed(world)
    (refused,) = [
        event
        for event in map(lambda r: decode(r.value), world.log.read(topics.INBOX, 0, 0))
        if event.type == "headwater.refused"
    ]
    (sent,) = [
        event
        for event in map(lambda r: decode(r.value), world.log.read(topics.COMMANDS, 0, 0))
        if event.type == "order.ship"
    ]
    assert (refused.causation_id, refused.correlation_id) == (sent.id, sent.correlation_id)
    assert refused.data["command"] == {"order_id": "O/1 ü"}


@pytest.mark.parametrize(
    ("command", "status", "cancelled"),
    [
        (stock.Reserve(sku="tea", order_id="O", quantity=1), "reserving", True),
        (stock.Reserve(sku="tea", order_id="O", quantity=1), "failing", False),
        (order.Confirm(order_id="O"), "confirming", True),
        (order.Cancel(order_id="O", reason="r"), "failing", False),
        (order.Expire(order_id="O"), "awaiting_payment", False),
    ],
)
def test_an_order_whose_reservation_or_confirmation_fails_is_cancelled(
    command: Command, status: Any, cancelled: bool
) -> None:
    refused = Refused(command, "failed", "internal_error", "x" * 9_000)
    made = order_fulfilment.react(refused, Fulfilment(status=status, order_id="O"))
    assert [type(each) for each in made.commands] == ([order.Cancel] if cancelled else [])


def test_an_order_whose_stock_has_a_bug_is_cancelled_and_refunded() -> None:
    world = World(random.Random(1))
    whole = world.commands
    broken = stock.stock.__class__(
        name="stock", id_field="sku", initial=stock.Stock(), decide=_fails, evolve=stock.evolve
    )
    found = {name: aggregate for name, aggregate in whole.aggregates.items() if name != "stock"}
    world.deploy(order_fulfilment, commands=CommandRegistry([("m", each) for each in found.values()] + [("s", broken)]))
    world.send("order.place", order_id="O", customer="Ada", lines=LINES)
    world.send("order.pay", order_id="O", amount_cents=5)
    world.settle()
    assert world.states()["order/O"].status == "cancelled"
    assert world.states()["refund/O"].status == "requested"


def _fails(command: stock.Receive | stock.Reserve | stock.Release | stock.Dispatch, state: stock.Stock) -> Any:
    raise ValueError("a bug")


class Counted(dict[str, bytes | None]):
    """Receipts of a transaction that count how often all of them are looked at: every reader waits meanwhile."""

    looked = 0

    def __iter__(self) -> Iterator[str]:
        self.looked += 1
        return super().__iter__()


def test_all_receipts_are_looked_at_once_for_all_commands_and_each_command_finds_its_own() -> None:
    time, sent, receipts = datetime(2026, 1, 2, tzinfo=UTC), list[tuple[Record, Envelope]](), Counted()
    for number in range(50):
        for command_type in ("order.ship", "order.pay"):  # the second one has the id of the first
            stream, source = f"order/{number}#a", return_address("sending", str(number))
            command = Envelope("same#id", command_type, stream, time, {}, source=source)
            sent.append((Record("commands", 0, len(sent), stream, b"", 0), command))
            error = ReceiptError(f"no_{command_type}", "no")
            receipt = Receipt("same#id", command_type, stream, "rejected", 0, "f", format_time(time), (), error)
            key = key_of(command)
            receipts[reuse_key(key, "f" * 32) if key in receipts else key] = receipt.to_json()
    found = refusals(sent, receipts, 0)
    assert [decode(record.value).data["code"] for record in found] == ["no_order.ship", "no_order.pay"] * 50
    assert receipts.looked == 1
