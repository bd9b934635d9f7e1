"""Events that a router has read and Kafka lost: it neither sends old ones again, nor passes over new ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

import pytest

from headwater.commands.owning.resume_offset import resume_offset
from headwater.commands.reacting.starts import continue_at_end
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import RecordsLost
from headwater.eventlog.ports import ROUTER, Entry
from headwater.eventlog.topics import EVENTS, INBOX
from tests.support.process_world import World
from tests.support.seeds import seed_of
from tests.unit.commands.test_process_starts import append, noting, seen

STREAM = "order/O0"


@pytest.fixture
def world() -> World:
    world = World(random.Random(seed_of(1)))
    world.deploy(noting("noting", "origin"))
    append(world, 1)
    world.settle()
    assert seen(world, "noting") == {("order.placed",)}
    return world


def lose(world: World, *, regrows: bool) -> int:
    """Lose the last event of a partition; regrows: others have its offset since. Returns the partition."""
    partition = partition_of(STREAM, world.log.partitions)
    records = world.log._records[EVENTS, partition]
    number = len(records)
    del records[-2:]
    while regrows and len(records) < number + 4:
        world.log.submit(Entry(EVENTS, f"order/other/{len(records)}", b"{}", 7), partition)
    return partition


def recreate(world: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make the topic again, with the events of all orders at other offsets."""
    before = world.log.incarnation
    monkeypatch.setattr(world.log, "incarnation", lambda topic: before(topic) + ("new" if topic == EVENTS else ""))
    return partition_of(STREAM, world.log.partitions)


@pytest.mark.parametrize(
    ("loses", "says"),
    [
        (lambda world, _: lose(world, regrows=False), "ends at offset"),
        (lambda world, _: lose(world, regrows=True), "has another record at offset"),
        (recreate, "is another topic"),
    ],
)
def test_a_router_stops_until_an_operator_lets_it_go_on_and_then_misses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, loses: Callable[[World, pytest.MonkeyPatch], int], says: str
) -> None:
    for each in range(world.log.partitions):
        with closing(world.log.own(each, ROUTER)) as writer:
            resume_offset(world.log, ROUTER, writer)  # notes which topic it is
    world.restart_all()
    copies = [len(list(world.log.read(INBOX, partition, 0))) for partition in range(world.log.partitions)]
    partition = loses(world, monkeypatch)
    for _ in range(2):
        with pytest.raises(RecordsLost, match=says) as lost:
            world.restart(ROUTER, partition)
        assert "replay continue-processes" in str(lost.value)
    found = continue_at_end(world.log)
    assert found[partition] == world.log.end(EVENTS, partition)
    assert continue_at_end(world.log) == {}, "where nothing is lost, nothing is left out"
    world.restart_all()
    world.settle()
    assert copies == [len(list(world.log.read(INBOX, partition, 0))) for partition in range(world.log.partitions)]
    append(world, 2)
    world.settle()
    assert seen(world, "noting") == {("order.placed", "order.paid")}
