"""What the owner of process instances keeps: bounded records, a local store, and little in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import orjson
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict

from headwater.commands.declaring.process import Process, Reaction, TimedOut
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting.instance_store import InstanceStore
from headwater.commands.reacting.process_task import ProcessTask
from headwater.eventlog import topics
from headwater.eventlog.ports import PROCESSES
from headwater.eventlog.settings import LogSettings
from headwater.replay.retry import Resender
from headwater.samples.orders.domain import order
from tests.support.domains import SHIPPED
from tests.support.module_time import set_time
from tests.support.process_world import World
from tests.support.seeds import seed_of, sweep

LINES = [{"sku": "tea", "quantity": 1, "unit_cents": 5}]
MONTH = timedelta(days=30)


class Counted(BaseModel):
    model_config = ConfigDict(frozen=True)
    orders: int = 0


def per_customer(**other: Any) -> Process[Counted]:
    """A process that hears of every order of a customer."""

    def react(event: order.Placed | order.Paid | TimedOut, state: Counted) -> Reaction[Counted]:
        if isinstance(event, TimedOut):
            return Reaction(Counted(orders=-1))
        return Reaction(Counted(orders=state.orders + 1), timers={"silent": MONTH, "often": timedelta(days=10)})

    declared: dict[str, Any] = {"name": "p", "key": "customer", "initial": Counted(), "starts": (order.Placed,)}
    return Process(**{**declared, "react": react, **other})


def place(world: World, number: int, customer: str = "Ada", kind: str = "order.placed", sequence: int = 1) -> None:
    data: dict[str, Any] = {"order_id": f"O{number}", "customer": customer, "lines": LINES}
    data |= {"total_cents": 5} if kind == "order.placed" else {"paid_cents": 5}
    world.record_events(f"order/O{number}", (kind, data), first=sequence)


def orders(world: World, customer: str = "Ada") -> int | None:
    instance = world.instance(f"p/{customer}")
    return None if instance is None else instance["state"]["orders"]


def task(world: World, partition: int = 0) -> ProcessTask:
    found, _ = world._tasks[PROCESSES, partition]
    assert isinstance(found, ProcessTask)
    return found


def record_bytes(world: World) -> int:
    return len(orjson.dumps(world.instance("p/Ada")))


def test_an_instance_does_not_grow_with_the_streams_that_it_hears_of() -> None:
    world = World(random.Random(1), partitions=3)
    world.deploy(per_customer())
    sizes = []
    for number in range(400):
        place(world, number)
        place(world, number, kind="order.paid", sequence=2)
        if number in (99, 399):
            world.settle()
            sizes.append(record_bytes(world))
    assert orders(world) == 800
    assert sizes[1] - sizes[0] < 100, "only numbers are longer"
    world.redeliver()
    world.settle()
    assert orders(world) == 800


def timers(world: World) -> int:
    store = task(world).store._store
    return sum(1 for _ in store.snapshots("timer"))


def test_timers_that_were_set_again_leave_nothing() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    for number in range(300):
        place(world, number)
        world.wait(timedelta(minutes=1))
        world.settle()
    assert timers(world) == 2
    world.wait(MONTH)
    world.settle()
    assert timers(world) == 0
    assert orders(world) == -1


@pytest.fixture(params=["memory", "disk"])
def stores(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Worlds whose owners find their local stores after a restart."""
    opened: dict[int, DiskStore] = {}
    budget = DiskBudget()

    def new_store(world: World, partition: int) -> DiskStore:
        if partition in opened:
            opened[partition].close()
        opened[partition] = DiskStore(tmp_path / str(partition), "a", budget)
        return opened[partition]

    monkeypatch.setattr(World, "keeps_stores", True)
    if request.param == "disk":
        monkeypatch.setattr(World, "process_store", new_store)
    yield request.param
    for store in opened.values():
        store.close()


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("number", sweep(4, 2))
def test_a_store_that_is_kept_has_what_the_log_has_through_faults(number: int) -> None:
    world = World(random.Random(seed_of(number)), partitions=2)
    world.deploy(per_customer())
    expected = dict.fromkeys(("Ada", "Bo", "Chen", "a/b", "a"), 0)
    for each in range(40):
        customer = world._chance.choice(sorted(expected))
        expected[customer] += 1
        place(world, each, customer)
        world.some_steps(8)
    world.settle()
    assert {customer: orders(world, customer) or 0 for customer in expected} == expected
    world.wait(timedelta(days=10))
    world.some_steps(20)
    world.settle()
    assert {orders(world, customer) for customer, count in expected.items() if count} == {-1}
    assert world.letters() == {}


@pytest.mark.usefixtures("stores")
def test_a_restart_reads_only_what_is_new_and_keeps_no_instance_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.commands.reacting.process_task.MAX_INSTANCES", 10)
    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    for number in range(100):
        place(world, number, f"customer {number}")
    world.settle()
    assert len(task(world)._recent._values) <= 10
    found = task(world).restore(world.log.own(0, role=PROCESSES), lambda: False)
    assert found.startswith("0 records of process instances read"), found
    world.restart(PROCESSES, 0)
    assert not task(world)._recent._values
    for number in range(100):
        place(world, number + 100, f"customer {number}")
    world.settle()
    assert {orders(world, f"customer {number}") for number in range(100)} == {2}


@pytest.mark.usefixtures("stores")
def test_a_store_that_is_ahead_of_the_log_is_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    place(world, 1)
    world.settle()
    store = task(world).store._store
    store.apply({"instance/p/Ada": b"{}", "instance/p/nobody": b"{}"}, {}, {topics.PROCESSES: 10**6})
    task(world).restore(world.log.own(0, role=PROCESSES), lambda: False)
    assert "rebuilding it" in caplog.text
    assert store.snapshot("instance/p/nobody") is None
    assert orders(world) == 1


def stopping(only: str) -> Process[Counted]:
    """A process of which the instances of customers that begin so stop at their first order."""

    def react(event: order.Placed | order.Paid | TimedOut, state: Counted) -> Reaction[Counted]:
        if isinstance(event, order.Placed) and event.customer.startswith(only):
            raise ValueError("a bug")
        return Reaction(Counted(orders=state.orders + 1))

    return per_customer(react=react)


@pytest.mark.usefixtures("stores")
def test_many_instances_that_have_stopped_go_on_after_a_restart_and_names_within_names_are_apart() -> None:
    world = World(random.Random(1), partitions=2)
    world.deploy(stopping("bad"))
    names = ["bad", "bad/", "bad//x", *(f"bad/{number}" for number in range(30))]
    for number, name in enumerate(names):
        place(world, number, name)
        for sequence in (2, 3):
            place(world, number, name, "order.paid", sequence)
    world.some_steps(60)
    world.settle()
    assert {orders(world, name) for name in names} == {0}
    world.deploy(stopping("never"))
    resender = Resender(LogSettings(modules=SHIPPED), world.log)
    letters = world.letters()
    assert len(letters) == len(names)
    for number, (key, letter) in enumerate(letters.items()):
        resender.resend(key, letter)
        if number % 5 == 0:
            world.some_steps(10)
    world.restart_all()
    world.settle()
    assert {orders(world, name) for name in names} == {3}
    assert not any(":" in key for key in world.instances())
    for partition in range(2):
        kept = task(world, partition).store._store
        left = [name for kind in ("waiting", "count", "ready") for name, _ in kept.snapshots(kind)]
        assert left == []


class Narrow(BaseModel):
    model_config = ConfigDict(frozen=True)
    orders: str = ""


def refused(value: int) -> int:
    raise ValueError("not any more")


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True)
    orders: Annotated[int, AfterValidator(refused)] = 0


Strict.__name__ = Strict.__qualname__ = "Counted"  # its schema is the same


@pytest.mark.usefixtures("stores")
def test_an_instance_whose_validators_changed_waits_with_a_letter_until_code_can_read_it() -> None:
    def react(event: order.Placed | order.Paid, state: Strict) -> Reaction[Strict]:
        return Reaction(state)

    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    place(world, 1)
    world.settle()
    world.wait(timedelta(days=11))
    strict = per_customer(initial=Strict.model_construct(orders=0), react=react)
    assert Strict.model_json_schema() | {"title": ""} == Counted.model_json_schema() | {"title": ""}
    world.deploy(strict)
    place(world, 2)
    world.settle()
    (key,) = world.letters()
    assert key == "processes/0/p/Ada"
    assert orders(world) == 1
    assert timers(world) == 0, "they wait"
    world.deploy(per_customer())
    world.settle()
    assert orders(world) in (-1, 2)


@pytest.mark.usefixtures("stores")
def test_the_letter_of_an_unreadable_instance_is_written_although_the_owner_is_killed_before() -> None:
    def react(event: order.Placed | order.Paid, state: Narrow) -> Reaction[Narrow]:
        return Reaction(state)

    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    place(world, 1)
    world.settle()
    narrow = per_customer(initial=Narrow(), react=react)
    world.deploy(narrow)
    world.deploy(narrow)
    assert world.letters() == {}
    world.settle()
    assert list(world.letters()) == ["processes/0/p/Ada"]
    before = world.log.end(topics.DEAD_LETTERS, 0)
    world.settle()
    assert world.log.end(topics.DEAD_LETTERS, 0) == before


@pytest.mark.usefixtures("stores")
def test_instances_and_timers_of_a_process_that_is_not_declared_wait_for_it() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    place(world, 1)
    world.settle()
    world.deploy()
    world.wait(timedelta(days=40))
    world.settle()
    assert orders(world) == 1
    assert timers(world) == 0
    world.deploy(per_customer())
    world.settle()
    assert orders(world) == -1


def test_timers_before_1970_and_with_any_name_are_in_order() -> None:
    store = InstanceStore(MemoryStore(), lambda name: True)
    due = {"": -5, "a:b": 7, "1:": 3, "ü\x00": 10**15}
    timers = {name: {"due_ms": at} for name, at in due.items()}
    for key in ("p/\udcff", "p/1:2"):
        store.put(key, orjson.dumps({"timers": timers, "state": {}}))
    store.flush({}, 1)
    assert [(record.due_ms, record.name) for record in store.due(10, 100) if record.key == "p/1:2"] == [
        (-5, ""), (3, "1:"), (7, "a:b"),
    ]  # fmt: skip
    assert {record.key for record in store.due(10**16, 100)} == {"p/\udcff", "p/1:2"}
    assert store.next_due_ms() == -5


def test_an_idle_owner_notes_the_time_so_that_its_store_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    set_time(monkeypatch, "headwater.commands.reacting.process_task", monotonic=lambda: now)
    world = World(random.Random(1), partitions=1)
    world.deploy(per_customer())
    idle = task(world)
    assert idle.wait_s() > 0
    now += 3_601
    assert idle.wait_s() <= 0
    writer = world.log.own(0, PROCESSES)
    ends = world.log.end(topics.PROCESSES, 0)
    idle.work(writer, [])
    assert idle.wait_s() > 0
    assert world.log.end(topics.PROCESSES, 0) == ends, "nothing is written to the log"


def test_a_store_with_a_reaction_that_the_log_has_lost_is_built_anew() -> None:
    """Others have its offsets since, so the end of the topic does not show it."""
    world = World(random.Random(1), partitions=1)
    world.keeps_stores = True
    world.deploy(per_customer(begins="origin"))
    place(world, 1)
    world.settle()
    kept = {topic: len(world.log._records[topic, 0]) for topic in (topics.PROCESSES, topics.INBOX)}
    place(world, 2, "Lost")
    world.settle()
    stale = world._stores[0]
    for topic, number in kept.items():
        del world.log._records[topic, 0][number:]
    world._stores[0] = MemoryStore()  # on another machine
    world.restart_all()
    for number in (3, 4, 5):
        place(world, number)
        world.settle()
    world._stores[0] = stale
    world.restart_all()
    task = world._tasks[PROCESSES, 0][0]
    assert isinstance(task, ProcessTask)
    assert [task.store.instance(f"p/{name}") is None for name in ("Ada", "Lost")] == [False, True]
    assert (orders(world), orders(world, "Lost")) == (4, None)
