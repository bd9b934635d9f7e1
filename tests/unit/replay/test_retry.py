"""Dead letters of the write side, taken in after their cause was mended."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog import topics
from headwater.eventlog.access import Program
from headwater.eventlog.envelope import Envelope, decode, encode, partition_of
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import PROCESSES, ROUTER, Entry, EventLog
from headwater.eventlog.settings import LogSettings
from headwater.replay import retry
from headwater.replay.errors import CannotRetry, NothingToRetry, Undeclared
from headwater.replay.retry import Resender, is_loss_notice, is_resent
from headwater.samples.orders.domain import order
from headwater.samples.shop.source import Customer, Order
from tests.support.background import running
from tests.support.captured_customers import row
from tests.support.domains import SHIPPED
from tests.support.process_world import World
from tests.support.rights import LogWithRights
from tests.unit.capturing.records import record

PLACED: dict[str, Any] = {"order_id": "O", "customer": "Ada", "lines": [{"sku": "tea", "quantity": 1, "unit_cents": 5}]}


@pytest.fixture(autouse=True)
def as_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rights of the account that runs `replay`, and no others."""
    begin = Resender.__init__

    def with_rights(made: Resender, settings: LogSettings, log: EventLog) -> None:
        begin(made, settings, LogWithRights(log, Program.OPERATOR))

    monkeypatch.setattr(Resender, "__init__", with_rights)


def letters(world: World) -> dict[str, Letter]:
    return {each.key: Letter.from_json(each.value or b"") for each in world.log.read(topics.DEAD_LETTERS, 0, 0)}


def mended(world: World, commands: CommandRegistry, processes: ProcessRegistry) -> None:
    world.commands, world.processes = commands, processes
    world.restart_all()


def at_work(world: World) -> Callable[[threading.Event], None]:
    def work(stop: threading.Event) -> None:
        while not stop.wait(0.01):
            world.settle()

    return work


def test_a_command_of_an_unknown_type_is_decided_once_the_type_is_known() -> None:
    world = World(random.Random(1))
    known, processes = world.commands, world.processes
    mended(world, CommandRegistry([]), ProcessRegistry([]))
    world.commands = known  # the API is newer than the handlers
    command_id = world.send("order.place", **PLACED)
    world.settle()
    ((key, letter),) = letters(world).items()
    assert is_resent(key)
    assert "order.place" in letter.reason

    mended(world, known, processes)
    with running(at_work(world)):
        receipt = Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
        again = Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter)
    assert receipt is not None
    assert (receipt.command_id, receipt.outcome) == (f"{command_id}/retry", "accepted")
    assert again == receipt
    (placed,) = (event for event in world.events() if event.type == "order.placed")
    assert (placed.causation_id, placed.correlation_id) == (receipt.command_id, command_id)


def test_what_still_cannot_be_read_says_so_and_nothing_is_sent() -> None:
    world = World(random.Random(1))
    stranger = encode(Envelope("c", "order.fly", "order/O", world.now, {"order_id": "O"}))
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    for value, says in [(stranger, r"order\.fly"), (b"{", "malformed JSON"), (None, "no value")]:
        with pytest.raises(CannotRetry, match=says):
            resender.resend("commands/0/0", Letter("", "", b"order/O", value))
    event = encode(Envelope("order/O/1", "order.placed", "order/O", world.now, {"order_id": 5}, sequence=1))
    with pytest.raises(CannotRetry, match="does not match"):
        resender.resend("events/0/0/router", Letter("", "", b"order/O/1", event))
    ends = [world.log.end(topic, p) for topic in (topics.COMMANDS, topics.INBOX) for p in range(world.log.partitions)]
    assert not any(ends)


class Counted(BaseModel):
    model_config = ConfigDict(frozen=True)
    order_id: str = ""
    seen: tuple[str, ...] = ()


def counting(fails: type | None) -> Process[Counted]:
    def react(event: order.Placed | order.Paid | order.Shipped, state: Counted) -> Reaction[Counted]:
        if fails is not None and isinstance(event, fails):
            raise ValueError("a bug")
        return Reaction(Counted(order_id=event.order_id, seen=(*state.seen, event.type)))

    return Process(name="counting", key="order_id", initial=Counted(), starts=(order.Placed,), react=react)


def record_events(world: World, *events: tuple[str, dict[str, Any]]) -> None:
    for sequence, (kind, data) in enumerate(events, 1):
        envelope = Envelope(f"order/O/{sequence}", kind, "order/O", world.now, data, sequence=sequence)
        partition = partition_of("order/O", world.log.partitions)
        world.log.submit(Entry(topics.EVENTS, envelope.id, encode(envelope), 0), partition)


def seen(world: World) -> list[str]:
    partition = partition_of("counting/O", world.log.partitions)
    values = [each.value for each in world.log.read(topics.PROCESSES, partition, 0) if each.key == "counting/O"]
    found: list[str] = orjson.loads(values[-1] or b"")["state"]["seen"]
    return found


@pytest.mark.parametrize(
    ("fails", "before"),
    [
        (order.Placed, []),
        (order.Paid, ["order.placed"]),
        (order.Shipped, ["order.placed", "order.paid"]),
    ],
)
def test_what_comes_after_an_event_that_a_process_could_not_handle_waits_until_that_is_sent_again(
    fails: type, before: list[str]
) -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(fails))]))
    record_events(
        world,
        ("order.placed", {**PLACED, "total_cents": 5}),
        ("order.paid", {**PLACED, "paid_cents": 5}),
        ("order.shipped", PLACED),
    )
    world.settle()
    ((key, letter),) = letters(world).items()
    assert is_resent(key)
    assert "a bug" in letter.reason
    assert seen(world) == before

    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    world.settle()
    assert seen(world) == before
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    assert resender.resend(key, letter) is None
    world.settle()
    with pytest.raises(NothingToRetry, match='"counting/O" has handled it since'):
        resender.resend(key, letter)
    assert seen(world) == ["order.placed", "order.paid", "order.shipped"]
    assert list(letters(world)) == [key]


def test_an_event_that_could_not_be_read_reaches_its_processes() -> None:
    world = World(random.Random(1))
    known = world.commands
    mended(world, CommandRegistry([]), world.processes)
    record_events(world, ("order.placed", {**PLACED, "total_cents": 5}))
    world.settle()
    ((key, letter),) = letters(world).items()
    assert is_resent(key)
    mended(world, known, world.processes)
    assert Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter) is None
    world.step(PROCESSES, partition_of("order_fulfilment/O", world.log.partitions), 100)
    assert world.instances() == ["order_fulfilment/O"]


def router_letter(world: World, number: int) -> tuple[str, Letter]:
    """What earlier versions wrote if a router could not read an event of the order."""
    partition = partition_of("order/O", world.log.partitions)
    (record,) = (each for each in world.log.read(topics.EVENTS, partition, 0) if each.key == f"order/O/{number}")
    return f"events/{partition}/{record.offset}/router", Letter("", "", record.key.encode(), record.value)


ORDER: list[tuple[str, dict[str, Any]]] = [
    ("order.placed", {**PLACED, "total_cents": 5}),
    ("order.paid", {**PLACED, "paid_cents": 5}),
    ("order.shipped", PLACED),
]


class CountingOnly(Resender):
    """A resender of a deployment with one process."""

    def __init__(self, world: World) -> None:
        super().__init__(LogSettings(modules=SHIPPED), world.log)
        self._processes = world.processes


def test_an_event_whose_later_ones_were_handled_is_not_sent_and_its_letter_stays() -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    record_events(world, *ORDER)
    world.settle()
    key, letter = router_letter(world, 2)
    with pytest.raises(CannotRetry, match="have handled later events of its stream") as refused:
        CountingOnly(world).resend(key, letter)
    assert not isinstance(refused.value, NothingToRetry)
    world.settle()
    assert seen(world) == ["order.placed", "order.paid", "order.shipped"]


def test_an_event_that_still_cannot_be_read_is_not_sent() -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    key, data = "events/0/0/router", {"order_id": "O", "customer": 5}
    event = encode(Envelope("order/O/1", "order.placed", "order/O", world.now, data, sequence=1))
    with pytest.raises(CannotRetry, match="does not match"):
        CountingOnly(world).resend(key, Letter("", "", b"order/O/1", event))
    assert not any(world.log.end(topics.INBOX, partition) for partition in range(world.log.partitions))


def test_later_events_of_a_stream_whose_name_goes_on_are_not_those_of_this_one() -> None:
    world = World(random.Random(1), partitions=1)
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    record_events(world, ORDER[0])
    world.settle()
    record_events(world, ORDER[1])
    world.log.own(0, ROUTER).begin().commit(world.log.end(topics.EVENTS, 0))
    world.record_events("order/O/1", ORDER[2])
    world.restart_all()
    world.settle()
    *_, (offset, _) = ((each.offset, each) for each in world.log.read(topics.EVENTS, 0, 0) if each.key == "order/O/1")
    (record,) = (each for each in world.log.read(topics.EVENTS, 0, offset) if each.offset == offset)
    letter = Letter("", "", record.key.encode(), (record.value or b"").replace(b'"sequence":1', b'"sequence":2'))
    assert CountingOnly(world).resend(f"events/0/{offset}/router", letter) is None


def test_an_event_that_begins_an_instance_is_sent_with_the_later_ones_of_its_stream() -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    for number in range(9):
        world.record_events(f"order/{number}", ORDER[2])
    world.settle()
    record_events(world, ORDER[0])
    for partition in range(world.log.partitions):  # as if the router had made it a dead letter
        world.log.own(partition, ROUTER).begin().commit(world.log.end(topics.EVENTS, partition))
    world.record_events("order/O", *ORDER[1:], first=2)
    world.restart_all()
    world.settle()
    assert world.instances() == []
    key, letter = router_letter(world, 1)
    assert CountingOnly(world).resend(key, letter) is None
    world.settle()
    assert seen(world) == ["order.placed", "order.paid", "order.shipped"]


def test_a_letter_that_no_process_needs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([]))
    record_events(world, *ORDER)
    world.settle()
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    key, letter = router_letter(world, 1)
    with pytest.raises(Undeclared, match=r"HEADWATER_MODULES does not declare here .*order_fulfilment"):
        CountingOnly(world).resend(key, letter)
    monkeypatch.setattr(retry, "read_starts", lambda *_: {"counting": dict.fromkeys(range(16), 99)})
    with pytest.raises(NothingToRetry, match="no process of this deployment handles it"):
        CountingOnly(world).resend(key, letter)  # the process has begun after these events


def test_an_event_is_sent_if_only_other_streams_have_later_ones() -> None:
    world = World(random.Random(1), partitions=1)
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    record_events(world, *ORDER[:1])
    world.settle()
    others = [(kind, {**data, "order_id": "O"}) for kind, data in ORDER[1:]]
    world.record_events("order/second", *others, first=1)
    world.settle()
    world.record_events("order/third", *others[:1], first=1)
    partition = 0
    *_, record = world.log.read(topics.EVENTS, partition, 0)
    world.log.own(partition, ROUTER).begin().commit(world.log.end(topics.EVENTS, partition))
    world.record_events("order/second", *others[:1], first=3)
    world.restart_all()
    world.settle()
    before = seen(world)
    key = f"events/{partition}/{record.offset}/router"
    for _ in range(2):  # a retry that was interrupted before it could remove the letter
        assert CountingOnly(world).resend(key, Letter("", "", record.key.encode(), record.value)) is None
        world.settle()
    assert seen(world) == [*before, "order.paid"]


def test_a_record_that_was_too_large_for_its_letter_is_read_from_its_topic() -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(order.Paid))]))
    record_events(world, ORDER[0], ("order.paid", {**ORDER[1][1], "customer": "x" * 3 * 1024 * 1024}), ORDER[2])
    world.settle()
    ((key, letter),) = letters(world).items()
    assert letter.value is None
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    assert Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter) is None
    world.settle()
    assert seen(world) == ["order.placed", "order.paid", "order.shipped"]


def test_a_large_record_that_the_inbox_has_not_any_more_is_read_from_the_events() -> None:
    world = World(random.Random(1))
    mended(world, world.commands, ProcessRegistry([("here", counting(order.Placed))]))
    record_events(world, ("order.placed", {**ORDER[0][1], "customer": "x" * 3 * 1024 * 1024}), *ORDER[1:])
    world.settle()
    ((key, letter),) = letters(world).items()
    _, partition, _ = key.split("/")
    world.log.delete(topics.INBOX, int(partition), world.log.end(topics.INBOX, int(partition)))
    mended(world, world.commands, ProcessRegistry([("here", counting(None))]))
    assert Resender(LogSettings(modules=SHIPPED), world.log).resend(key, letter) is None
    world.settle()
    assert seen(world) == ["order.placed", "order.paid", "order.shipped"]


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_row_that_could_not_be_read_reaches_its_processes_unless_it_has_changed_since(has_changed: bool) -> None:
    world = World(random.Random(1))
    at = world.change(Customer, {"id": 7}, record(after=row(7, "Ada"), op="c"))
    letter, key = Letter("", "", at.key.encode(), at.value), f"{at.topic}/{at.partition}/{at.offset}/router"
    if has_changed:
        world.change(Customer, {"id": 7}, record(after=row(7, "Bo"), op="u"))
    assert is_resent(key)
    with pytest.raises(NothingToRetry, match="has changed since") if has_changed else nullcontext():
        assert Resender(LogSettings(modules=("shop",)), world.log).resend(key, letter) is None
    inbox = [
        decode(partition.value) for p in range(world.log.partitions) for partition in world.log.read(topics.INBOX, p, 0)
    ]
    assert [event.data["row"]["name"] for event in inbox] == ([] if has_changed else ["Ada"])


def test_a_row_of_a_view_that_could_not_be_read_reaches_its_processes() -> None:
    world = World(random.Random(1))
    row = {"card": "A", "ids": '["p1","p2"]'}
    at = world.show("rapid_payments", "A/1", row)
    letter, key = Letter("", "", b"A/1", at.value), f"views.rapid_payments/{at.partition}/{at.offset}/router"
    assert is_resent(key)
    resender = Resender(LogSettings(modules=("payments",)), world.log)
    assert resender.resend(key, letter) is None
    inbox = [partition for p in range(world.log.partitions) for partition in world.log.read(topics.INBOX, p, 0)]
    assert [(each.key, decode(each.value).data["row"]["ids"]) for each in inbox] == [("card_blocking/A", row["ids"])]
    wrong = world.show("rapid_payments", "B/1", {"card": "B"})
    with pytest.raises(CannotRetry, match='a row of the view "rapid_payments" does not match "RapidPayments"'):
        resender.resend(f"views.rapid_payments/{wrong.partition}/9/router", Letter("", "", b"B/1", wrong.value))


def test_a_row_that_still_cannot_be_read_or_that_no_process_handles_says_so() -> None:
    resender = Resender(LogSettings(modules=("shop",)), World(random.Random(1)).log)
    letter = Letter("", "", b'{"id":7}', record(after=row(7) | {"name": None}))
    with pytest.raises(CannotRetry, match='the column "name" is null'):
        resender.resend(f"{Customer.topic()}/0/0/router", letter)
    with pytest.raises(CannotRetry, match=r'no process handles rows of "cdc\.shop\.public\.orders"'):
        resender.resend(f"{Order.topic()}/0/0/router", letter)


def test_what_views_could_not_take_in_is_not_sent_again() -> None:
    assert not is_resent("events/0/5")
    assert not is_resent("patches/postgres/listings@1/0/5")


def test_letters_about_records_that_are_lost_are_told_from_those_that_can_be_retried() -> None:
    assert is_loss_notice("process-inbox/0/1-2")
    assert is_loss_notice("views.rapid_payments/0/1-2")
    kept = ["process-inbox/0/1", "events/0/5/router", "processes/0/p/1-2", "process-inbox/0/timer/p/a/t@1-2"]
    assert not any(map(is_loss_notice, kept))
    with pytest.raises(CannotRetry, match="has no value"):
        Resender(LogSettings(modules=SHIPPED), World(random.Random(1)).log).resend(
            "commands/0/1-2", Letter("", "", None, None)
        )
