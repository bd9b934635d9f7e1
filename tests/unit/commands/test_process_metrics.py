"""How many instances, timers and parked events owners of process instances have: as counted from the log."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import orjson
import pytest

from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting import instance_index, instance_store
from headwater.commands.reacting.instance_index import NOTED, InstanceCount, Scheduled
from headwater.commands.reacting.process_task import OWNED, ProcessTask
from headwater.eventlog import topics
from headwater.eventlog.ports import NEXT_OFFSET, PROCESSES, Entry
from headwater.samples.orders.domain import order
from tests.support.process_world import World
from tests.support.seeds import seed_of, sweep
from tests.unit.commands.test_process_failures import SOON, WORST, counting, history
from tests.unit.commands.test_process_store import per_customer, place


@pytest.fixture(autouse=True)
def nothing_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OWNED, "_owned", {})


def measured(name: str) -> dict[str, float]:
    (found,) = (span for span in OWNED.collect() if span.name == f"headwater_process_{name}")
    return {value: sample.value for sample in found.samples for value in sample.labels.values()}


def logged(world: World) -> dict[str, InstanceCount]:
    """What the log has, counted at once."""
    latest: dict[str, bytes | None] = {}
    for partition in range(world.log.partitions):
        latest |= {record.key: record.value for record in world.log.read(topics.PROCESSES, partition, 0)}
    found: dict[str, InstanceCount] = {}
    for key, value in latest.items():
        if value is not None and key != NEXT_OFFSET and not key.startswith("parked:"):
            instance, count = orjson.loads(value), found.setdefault(key.partition("/")[0], InstanceCount())
            count.instances += 1
            count.stopped += "stopped" in instance
            count.timers += len(instance["timers"])
    return found


def counted(world: World) -> dict[str, InstanceCount]:
    """What the owners have counted."""
    found: dict[str, InstanceCount] = {}
    for (role, _), (task, _) in world._tasks.items():
        if role is PROCESSES:
            assert isinstance(task, ProcessTask)
            for process, count in task.store.counts.of_process.items():
                total = found.setdefault(process, InstanceCount())
                total.instances += count.instances
                total.stopped += count.stopped
                total.timers += count.timers
    return {process: count for process, count in found.items() if count != InstanceCount()}


def some_history(chance: random.Random, partitions: int) -> World:
    """Orders of which a third stop their instance, through faults and over days."""
    world = World(chance, partitions=partitions)
    world.deploy(counting(WORST["nothing"], order.Paid), per_customer())
    for number in range(12):
        name = "bad" if number % 3 == 0 else "good"
        world.record_events(f"order/{name}{number}", *history(f"{name}{number}"))
        world.some_steps(12)
        world.wait(timedelta(days=chance.randrange(12)))
    world.settle()
    return world


def test_instances_timers_and_parked_events_are_measured_by_process() -> None:
    world = World(random.Random(1), partitions=1)
    world.deploy(counting(WORST["nothing"]), per_customer())
    world.record_events("order/bad", *history("bad"))
    place(world, 1)
    world.settle()
    assert measured("instances") == {"counting": 2, "p": 1}
    assert measured("stopped") == {"counting": 1, "p": 0}
    assert measured("timers")["p"] == 2
    assert measured("parked") == {"0": 2}
    assert measured("timer_due_timestamp_seconds")["0"] == (world.now + SOON).timestamp()


@pytest.mark.parametrize("number", sweep(6, 2))
def test_the_numbers_are_those_of_the_log_through_faults_restarts_and_lost_stores(number: int) -> None:
    chance = random.Random(seed_of(number))
    world = some_history(chance, partitions=2)
    assert counted(world) == logged(world)
    assert sum(each.instances for each in counted(world).values()) > 0
    if chance.random() < 0.5:
        world.restart_all()
        assert counted(world) == logged(world)


def test_numbers_of_another_position_are_not_taken_and_those_of_this_one_are_not_counted_again() -> None:
    world = World(random.Random(1), partitions=1)
    world.keeps_stores = True
    world.deploy(per_customer())
    place(world, 1)
    world.settle()
    store = world._stores[0]
    assert isinstance(store, MemoryStore)
    noted = orjson.loads(store.snapshot(NOTED) or b"")
    store.apply({NOTED: orjson.dumps({**noted, "counts": {"p": {"instances": 7, "stopped": 0, "timers": 0}}})}, {}, {})
    world.restart(PROCESSES, 0)
    assert measured("instances") == {"p": 7}, "a start does not read all instances"
    # as if it was killed after a change of instances
    store.apply({NOTED: orjson.dumps({**noted, "position": noted["position"] - 1})}, {}, {})
    world.restart(PROCESSES, 0)
    assert measured("instances") == {"p": 1}
    world.log.submit(Entry(topics.PROCESSES, "p/Ada", None, 0), 0)
    world.restart(PROCESSES, 0)
    assert measured("instances") == {"p": 0}


def test_what_is_counted_is_read_once_for_the_timers_and_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    read, original = list[bytes](), instance_index.scheduled_of

    def scheduled_of(value: bytes | None) -> Scheduled:
        read.extend(() if value is None else [value])
        return original(value)

    for module in (instance_index, instance_store):
        monkeypatch.setattr(module, "scheduled_of", scheduled_of)
    store = instance_store.InstanceStore(MemoryStore(), lambda _: True)
    for value in (b'{"timers":{"a":{"due_ms":1}}}', b'{"timers":{}}'):
        store.put("p/Ada", value)
        store.flush({}, 0)
    assert read == [b'{"timers":{"a":{"due_ms":1}}}', b'{"timers":{"a":{"due_ms":1}}}', b'{"timers":{}}']
    assert store.counts.of_process == {"p": InstanceCount(instances=1)}


def test_a_partition_that_is_given_up_is_measured_no_more_unless_it_has_another_owner_since() -> None:
    world = World(random.Random(1), partitions=1)
    first, _ = world._tasks[PROCESSES, 0]
    world.restart(PROCESSES, 0)
    second, _ = world._tasks[PROCESSES, 0]
    first.close()
    assert Counter(measured("parked")) == {"0": 0}
    second.close()
    assert measured("parked") == {}
