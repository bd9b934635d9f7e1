"""Two versions of the code side by side: what only newer code handles is not lost, whichever of them owns what."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction, Refused, TimedOut
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.commands.reacting.row_router import row_role
from headwater.commands.reacting.starts import settle_inputs
from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import PROCESSES, ROUTER, Entry, Role
from headwater.samples.orders.domain import order
from headwater.samples.shop.source import Customer
from tests.support.captured_customers import row
from tests.support.process_world import World
from tests.support.seeds import seed_of
from tests.unit.capturing.records import record

LINES = [{"sku": "tea", "quantity": 1, "unit_cents": 5}]
PLACED: dict[str, Any] = {"order_id": "O", "customer": "Ada", "lines": LINES}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("order.placed", {**PLACED, "total_cents": 5}),
    ("order.paid", {**PLACED, "paid_cents": 5}),
    ("order.shipped", PLACED),
]
KINDS = [kind for kind, _ in EVENTS]


class Noted(BaseModel):
    model_config = ConfigDict(frozen=True)
    seen: tuple[str, ...] = ()


def noting(annotation: Any, **other: Any) -> Process[Noted]:
    def react(event: Any, state: Noted) -> Reaction[Noted]:
        kind = "deleted" if isinstance(event, RowDeleted) else getattr(type(event), "type", type(event).__name__)
        return Reaction(Noted(seen=(*state.seen, kind)))

    react.__annotations__["event"] = annotation
    declared: dict[str, Any] = {"name": "p", "key": "order_id", "initial": Noted(), "starts": (order.Placed,)}
    return Process(**{**declared, "react": react, **other})


OLDER, NEWER = noting(order.Placed | order.Shipped), noting(order.Placed | order.Paid | order.Shipped)


def owned_by(world: World, process: Process[Noted], *roles: Role) -> None:
    """A handler with this code starts, and takes over these roles."""
    world.processes = ProcessRegistry([("m", process)])
    world.settle_declarations()
    for role in roles:
        for partition in range(world.log.partitions):
            world.restart(role, partition)


def seen(world: World, key: str = "O") -> list[str]:
    instance = world.instance(f"p/{key}")
    return list(instance["state"]["seen"]) if instance else []


@pytest.fixture(params=range(4), ids=lambda number: f"seed {number}")
def world(request: pytest.FixtureRequest) -> World:
    world = World(random.Random(seed_of(request.param)), partitions=2)
    world.deploy(OLDER)
    return world


def test_an_older_router_passes_over_what_a_newer_owner_handles_and_a_newer_router_brings_it(world: World) -> None:
    owned_by(world, NEWER, PROCESSES)
    world.record_events("order/O", *EVENTS)
    world.settle()
    assert seen(world) == ["order.placed", "order.shipped"]
    for _ in range(2):  # the partitions go back and forth
        owned_by(world, NEWER, ROUTER)
        world.settle()
        assert sorted(seen(world)) == sorted(KINDS)
        owned_by(world, OLDER, ROUTER)
        world.settle()
    world.record_events("order/O", EVENTS[1], first=4)
    world.settle()
    owned_by(world, NEWER, ROUTER)
    world.some_steps(20)
    world.settle()
    world.redeliver()
    world.settle()
    assert seen(world) == ["order.placed", "order.shipped", "order.paid", "order.paid"]
    assert world.letters() == {}


def test_a_newer_router_brings_what_an_older_owner_lets_wait_in_its_order(world: World) -> None:
    owned_by(world, NEWER, ROUTER)
    owned_by(world, OLDER)  # an older handler starts again: it stays the older one
    for partition in range(world.log.partitions):
        world.restart(PROCESSES, partition)
    world.record_events("order/O", *EVENTS)
    world.record_events("order/other", ("order.placed", {**EVENTS[0][1], "order_id": "other"}))
    world.some_steps(20, faults=False)
    world.settle()
    assert seen(world) == ["order.placed"]
    assert seen(world, "other") == ["order.placed"], "the others go on"
    owned_by(world, NEWER, PROCESSES)
    world.some_steps(20)
    world.settle()
    assert seen(world) == KINDS
    assert world.letters() == {}


def test_an_older_owner_that_started_before_newer_code_was_known_lets_wait_what_it_does_not_know(world: World) -> None:
    owned_by(world, NEWER, ROUTER)
    world.record_events("order/O", *EVENTS)
    world.settle()
    assert seen(world) == ["order.placed"]
    owned_by(world, NEWER, PROCESSES)
    world.settle()
    assert seen(world) == KINDS


def test_an_instance_that_newer_code_begins_waits_for_that_code(world: World) -> None:
    owned_by(world, noting(order.Placed | order.Paid | order.Shipped, starts=(order.Placed, order.Paid)), ROUTER)
    world.record_events("order/O", *EVENTS[1:], first=2)
    world.settle()
    assert world.instances() == []
    owned_by(world, noting(order.Placed | order.Paid | order.Shipped, starts=(order.Placed, order.Paid)), PROCESSES)
    world.settle()
    assert seen(world) == KINDS[1:]


def test_timers_of_an_instance_that_waits_for_newer_code_wait_too(world: World) -> None:
    world.keeps_stores = True
    owned_by(world, NEWER, ROUTER)
    timer = b'{"due_ms":5,"causation_id":"c","correlation_id":null}'
    instance = b'{"shape":"","timers":{"t":' + timer + b'},"state":{"seen":[]}}'
    partition = partition_of("p/O", 2)
    world.log.submit(Entry(topics.PROCESSES, "p/O", instance, 0), partition)
    world.record_events("order/O", EVENTS[1])
    world.step(ROUTER, partition_of("order/O", 2), 100)
    owned_by(world, noting(order.Placed | order.Shipped | TimedOut), PROCESSES)
    inbox = list(world.log.read(topics.INBOX, partition, 0))
    for _ in range(2):
        world.step(PROCESSES, partition, 100)
    assert len(inbox) == 1
    assert seen(world) == []
    owned_by(world, noting(order.Placed | order.Paid | TimedOut), PROCESSES)
    world.settle()
    assert seen(world) == ["order.paid", "TimedOut"]


def test_what_is_not_handled_any_more_is_ignored_and_what_comes_after_it_is_handled(world: World) -> None:
    world.deploy(NEWER)
    world.record_events("order/O", *EVENTS)
    for partition in range(2):
        world.step(ROUTER, partition, 100)
    world.deploy(noting(order.Shipped | order.Placed | order.Cancelled))
    world.settle()
    assert seen(world) == ["order.placed", "order.shipped"]


def test_an_added_input_begins_now_and_one_that_comes_back_continues(world: World) -> None:
    world.record_events("order/O", *EVENTS[:2])
    world.settle()
    world.deploy(NEWER)
    world.settle()
    assert seen(world) == ["order.placed"], "it is added after the event"
    world.deploy(OLDER)
    world.record_events("order/O", EVENTS[1], first=3)
    world.settle()
    world.deploy(NEWER)
    world.settle()
    assert seen(world) == ["order.placed", "order.paid"]


def test_refusals_wait_for_code_that_handles_them(world: World) -> None:
    assert settle_inputs(world.log, {"p": noting(order.Placed | Refused)}) == {"p": frozenset({"order.shipped"})}
    assert settle_inputs(world.log, {"p": OLDER}) == {"p": frozenset()}, "they are newer"


def test_an_event_of_a_newer_version_waits_for_the_code_that_reads_it(world: World) -> None:
    world.record_events("order/O", EVENTS[0])
    world.settle()
    world.record_events("order/O", EVENTS[2], first=2)
    partition = partition_of("order/O", 2)
    *_, last = world.log.read(topics.EVENTS, partition, 0)
    newer = (last.value or b"").replace(b'"dataversion":1', b'"dataversion":9')
    assert newer != last.value
    world.log.submit(Entry(topics.EVENTS, "order/O/3", newer.replace(b'"sequence":2', b'"sequence":3'), 0), partition)
    world.record_events("order/O", EVENTS[2], first=4)
    world.settle()
    assert seen(world) == ["order.placed", "order.shipped"]
    assert world.letters() == {}
    waiting = [number.key for p in range(2) for number in world.log.read(topics.PROCESSES, p, 0) if ":" in number.key]
    assert len(waiting) == 2


def test_the_deletions_of_rows_are_an_input_of_their_own() -> None:
    world = World(random.Random(1), partitions=1)
    rows = noting(Customer, key="customer_id", starts=(Customer,), begins="origin")
    both = noting(Customer | RowDeleted[Customer], key="customer_id", starts=(Customer,), begins="origin")
    world.deploy(rows)
    owned_by(world, both, PROCESSES)
    world.change(Customer, {"id": 7}, record(after=row(7), op="c"))
    world.change(Customer, {"id": 7}, record(op="d", lsn=24023130))
    world.settle()
    assert seen(world, "7") == ["Customer"]
    owned_by(world, both, row_role(Customer.topic(), 1))
    world.settle()
    assert seen(world, "7") == ["Customer", "deleted"]
