"""Where a process begins: as it declares, whether it is the first one or comes later, and never twice."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction
from headwater.commands.errors import DeclarationError
from headwater.commands.reacting.starts import read_starts, settle_starts
from headwater.eventlog import topics
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import ROUTER, Entry
from headwater.samples.orders.domain import order
from tests.support.process_world import World
from tests.support.seeds import seed_of

LINES = [{"sku": "tea", "quantity": 1, "unit_cents": 5}]
ORDERS = 7


class Noted(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[str, ...] = ()


def noting(name: str, begins: Literal["now", "origin"]) -> Process[Noted]:
    def react(event: order.Placed | order.Paid | order.Shipped, state: Noted) -> Reaction[Noted]:
        return Reaction(Noted(seen=(*state.seen, event.type)))

    return Process(
        name=name,
        key="order_id",
        initial=Noted(),
        starts=(order.Placed, order.Paid, order.Shipped),
        react=react,
        begins=begins,
    )


def append(world: World, number: int) -> None:
    """Event number `number` of each order, from 1."""
    for each in range(ORDERS):
        order_id = f"O{each}"
        placed: dict[str, Any] = {"order_id": order_id, "customer": "Ada", "lines": LINES}
        events = [
            ("order.placed", {**placed, "total_cents": 5}),
            ("order.paid", {**placed, "paid_cents": 5}),
            ("order.shipped", placed),
        ]
        world.record_events(f"order/{order_id}", events[number - 1], first=number)


def seen(world: World, process: str) -> set[tuple[str, ...]]:
    """What the orders' instances have seen, each; an instance that has not begun saw nothing."""
    found = [world.instance(f"{process}/O{number}") for number in range(ORDERS)]
    return {tuple(each["state"]["seen"]) if each else () for each in found}


def routed(world: World, process: str) -> int:
    inbox = [r for p in range(world.log.partitions) for r in world.log.read(topics.INBOX, p, 0)]
    return sum(record.key.startswith(f"{process}/") for record in inbox)


ALL = {("order.placed", "order.paid", "order.shipped")}


@pytest.fixture(params=range(3), ids=lambda number: f"seed {number}")
def world(request: pytest.FixtureRequest) -> World:
    world = World(random.Random(seed_of(request.param)), partitions=2)
    world.deploy()
    return world


def work(world: World) -> None:
    world.some_steps(30)
    world.settle()


@pytest.mark.parametrize(("begins", "found"), [("origin", ALL), ("now", {("order.shipped",)})])
def test_the_first_process_of_a_deployment_with_a_past_begins_as_it_says(
    world: World, begins: Literal["now", "origin"], found: set[tuple[str, ...]]
) -> None:
    append(world, 1)
    append(world, 2)
    work(world)
    world.deploy(noting("first", begins))
    append(world, 3)
    work(world)
    assert seen(world, "first") == found


def test_a_first_process_that_begins_now_does_not_read_the_past(world: World) -> None:
    append(world, 1)
    world.deploy(noting("first", "now"))
    assert [world.log.next_offset(p, ROUTER) for p in range(2)] == [world.log.end(topics.EVENTS, p) for p in range(2)]


@pytest.mark.parametrize(("begins", "found"), [("origin", ALL), ("now", {("order.shipped",)})])
def test_a_later_process_begins_as_it_says_and_the_earlier_one_goes_on(
    world: World, begins: Literal["now", "origin"], found: set[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.reacting.router.MAX_SPAN_OFFSETS", 2)
    world.deploy(noting("first", "origin"))
    append(world, 1)
    append(world, 2)
    work(world)
    world.deploy(noting("first", "origin"), noting("later", begins))
    append(world, 3)
    work(world)
    assert seen(world, "first") == ALL
    assert seen(world, "later") == found
    assert routed(world, "first") == 3 * ORDERS, "nothing of it was routed again"
    assert routed(world, "later") == len(next(iter(found))) * ORDERS


def test_processes_that_are_behind_at_different_places_catch_up_each_from_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.reacting.router.MAX_SPAN_OFFSETS", 1)
    every = [noting(name, "origin") for name in ("a", "b", "c")]
    for number in (1, 2, 3):
        world.deploy(*every[:number])
        append(world, number)
        world.some_steps(10)
    work(world)
    for process in every:
        assert seen(world, process.name) == ALL
        assert routed(world, process.name) == 3 * ORDERS


@pytest.mark.parametrize("behind", [True, False])
def test_a_transaction_copies_a_bounded_number_of_bytes(behind: bool) -> None:
    world = World(random.Random(1), partitions=1)
    both = [noting(name, "origin") for name in ("a", "b")]
    world.deploy(*([] if behind else both))
    placed = {"order_id": "O0", "customer": "x" * 1024 * 1024, "lines": LINES, "total_cents": 5}
    for first in range(1, 41):
        world.record_events("order/O0", ("order.placed", placed), first=first)
    if behind:
        world.settle()
        world.deploy(*both)
    transactions = []
    while world.step(ROUTER, 0, 100):
        transactions.append(routed(world, "a"))
    assert transactions == [*range(4, 41, 4)]
    assert routed(world, "b") == 40
    world.settle()
    instance = world.instance("a/O0")
    assert instance == world.instance("b/O0")
    assert instance is not None
    assert len(instance["state"]["seen"]) == 40


def test_a_process_that_is_taken_out_and_comes_back_goes_on_where_it_was(world: World) -> None:
    both = [noting("stays", "now"), noting("comes_back", "now")]
    world.deploy(*both)
    append(world, 1)
    work(world)
    world.deploy(both[0])
    append(world, 2)
    work(world)
    assert seen(world, "comes_back") == {("order.placed",)}
    world.deploy(*both)
    append(world, 3)
    work(world)
    assert seen(world, "stays") == seen(world, "comes_back") == ALL
    assert routed(world, "comes_back") == 3 * ORDERS


def test_what_happens_before_the_first_router_runs_is_not_before_now() -> None:
    world = World(random.Random(1), partitions=2)
    world.deploy(noting("first", "now"))
    for number in (1, 2, 3):
        append(world, number)
    world.deploy(noting("first", "now"))
    world.settle()
    assert seen(world, "first") == ALL


def test_of_two_handlers_that_start_together_the_first_settles_where_a_process_begins() -> None:
    log, registry = MemoryLog(1), ProcessRegistry([("m", noting("p", "now"))])
    first = settle_starts(log, registry.processes)
    log.submit(Entry(topics.STARTS, "p", b'{"begins":"now","offsets":[9],"inputs":["order.paid"]}', 0), 0)
    names = ["p", "p/order.paid", "p/order.placed", "p/order.shipped"]
    assert first == read_starts(log) == settle_starts(log, registry.processes) == {name: {0: 0} for name in names}


def test_a_process_begins_at_one_of_two_places() -> None:
    with pytest.raises(DeclarationError, match='"p" begins at "tomorrow": use "now" or "origin"'):
        noting("p", "tomorrow")  # type: ignore[arg-type]
