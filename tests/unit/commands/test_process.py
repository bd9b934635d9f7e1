"""Declaring processes, and what becomes of events that one cannot handle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.process import Process, ProcessRegistry, Reaction, TimedOut
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError, UnreadableProcess
from headwater.commands.reacting.instance import Instance, read_instance, write_instance
from headwater.commands.reacting.router import COMMIT_IDLE_S, Router, RoutingTask
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode, partition_of
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import ROUTER, Entry, Record
from headwater.samples.orders.domain import order
from headwater.samples.orders.processes import order_fulfilment
from tests.support.domains import SHIPPED
from tests.support.process_world import World


class Known(BaseModel):
    model_config = ConfigDict(frozen=True)
    order_id: str = ""


def react(event: order.Placed | TimedOut, state: Known) -> Reaction[Known]:
    raise ValueError("a bug")


def process(**other: Any) -> Process[Known]:
    declared: dict[str, Any] = {"name": "p", "key": "order_id", "initial": Known(), "starts": (order.Placed,)}
    return Process(**{**declared, "react": react, **other})


def no_events(event: str, state: Known) -> Reaction[Known]:
    return Reaction(state)


class Loose(BaseModel):
    pass


class Region(Enum):
    EU = "eu"


class Moved(Event, type="parcel.moved"):
    parcel_id: str
    region: Region
    owner: str | None
    anything: Any


class Move(Command, type="parcel.move"):
    parcel_id: str


class Parcel(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Move, state: Parcel) -> Sequence[Event]:
    return []


def evolve(state: Parcel, event: Moved) -> Parcel:
    return state


parcel = Aggregate(name="parcel", id_field="parcel_id", initial=Parcel(), decide=decide, evolve=evolve)


def on_moved(event: Moved, state: Known) -> Reaction[Known]:
    return Reaction(state)


@pytest.mark.parametrize("key", ["owner", "anything"])
def test_a_key_that_may_be_null_is_refused(key: str) -> None:
    with pytest.raises(DeclarationError, match=f'"{key}" of "parcel.moved", the key of process "p", may be null'):
        process(key=key, react=on_moved, starts=(Moved,))


def test_an_enum_names_an_instance_by_its_value() -> None:
    world = World(random.Random(1))
    world.deploy(process(key="region", react=on_moved, starts=(Moved,)), commands=CommandRegistry([("m", parcel)]))
    data = {"parcel_id": "P", "region": "eu", "owner": None, "anything": 1}
    world.record_events("parcel/P", ("parcel.moved", data))
    world.settle()
    assert world.instances() == ["p/eu"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "P-1"}, "not a process name"),
        ({"key": "sku"}, '"order.placed" has no field "sku"'),
        ({"initial": Loose()}, "frozen"),
        ({"starts": ()}, "no event that begins an instance"),
        ({"starts": (order.Paid,)}, r"order\.paid"),
        ({"react": no_events}, "annotated with Event classes"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        process(**wrong)


def test_the_shipped_processes_are_found_and_two_of_one_name_are_an_error() -> None:
    registry = ProcessRegistry.load(SHIPPED)
    assert registry.processes["order_fulfilment"] is order_fulfilment
    assert order_fulfilment in registry.by_event["stock.reserved"]
    with pytest.raises(DeclarationError, match=r'"a\.one" and "b\.two".*"p"'):
        ProcessRegistry([("a.one", process()), ("b.two", process())])


def test_an_instance_that_does_not_fit_is_told_and_new_fields_need_a_default() -> None:
    written = write_instance(Instance(process(), "O", Known(order_id="O")))
    assert read_instance(process(), "O", written).state == Known(order_id="O")
    assert read_instance(process(), "O", _without(written, "order_id")).state == Known()
    for broken in (b"{", b"[]", b'{"state":{"order_id":5}}'):
        with pytest.raises(UnreadableProcess, match='"O" of process "p"'):
            read_instance(process(), "O", broken)


def _without(written: bytes, field: str) -> bytes:
    document = orjson.loads(written)
    del document["state"][field]
    return orjson.dumps(document)


def letters(world: World) -> list[str]:
    return [orjson.loads(record.value or b"")["reason"] for record in world.log.read(topics.DEAD_LETTERS, 0, 0)]


def test_if_a_process_fails_the_event_is_a_dead_letter_and_other_processes_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(random.Random(1))
    world.deploy(process(), order_fulfilment)
    world.send("order.place", order_id="O", customer="Ada", lines=[{"sku": "tea", "quantity": 1, "unit_cents": 1}])
    world.settle()
    (reason,) = letters(world)
    assert reason.startswith('process "p" failed, error ')
    assert reason.endswith("ValueError: a bug")
    assert world.instances() == ["order_fulfilment/O", "p/O"]
    assert "a bug" in caplog.text


def test_an_event_without_the_key_of_its_instance_is_a_dead_letter() -> None:
    world = World(random.Random(1))
    world.send("order.place", order_id="O", customer="Ada", lines=[{"sku": "tea", "quantity": 1, "unit_cents": 1}])
    partition = partition_of("order/O", world.log.partitions)
    for role, owned in sorted(world._tasks):
        if role is not ROUTER:
            world.step(role, owned, 100)
    document = orjson.loads(next(iter(world.log.read(topics.EVENTS, partition, 0))).value or b"")
    assert decode(orjson.dumps(document)).type == "order.placed"
    document["data"] = {"order_id": 5}
    world.log.submit(Entry(topics.EVENTS, "order/O/1", orjson.dumps(document), 0), partition)
    world.settle()
    (reason,) = letters(world)
    assert "does not match" in reason
    assert world.instances() == ["order_fulfilment/O"]


def test_a_router_notes_its_place_now_and_then_though_no_event_concerns_a_process() -> None:
    log, now = MemoryLog(1), 0.0
    routes = Router(CommandRegistry.load(SHIPPED), ProcessRegistry.load(SHIPPED))
    router = RoutingTask(log, lambda: routes, 0, {}, clock=lambda: now)
    writer = log.own(0, ROUTER)
    places = []
    for offset, now in enumerate((0.1, COMMIT_IDLE_S, COMMIT_IDLE_S + 0.1, 2 * COMMIT_IDLE_S)):  # noqa: B007  # the router's clock reads it
        router.work(writer, [Record(topics.EVENTS, 0, offset, f"listing/L/{offset + 1}", b"{}", 0)])
        places.append(log.next_offset(0, ROUTER))
    assert places == [0, 2, 2, 4]
