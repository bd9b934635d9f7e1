"""`replay erase` on a log in memory: what it finds, what it asks the owners to do, and which copies it removes."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import orjson
import pytest

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.reacting.process_task import ProcessTask
from headwater.eventlog import topics
from headwater.eventlog.access import Program
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import PROCESSES, Entry, EventLog, Record
from headwater.replay import erasing
from headwater.replay.erasing import Eraser, find
from headwater.replay.errors import AmbiguousTarget, CannotErase, NothingToErase
from tests.support.process_world import World
from tests.support.rights import LogWithRights
from tests.unit.commands.counted import Counters
from tests.unit.commands.test_handler import REGISTRY
from tests.unit.commands.test_process_failures import counting, history, raises

NONE = ProcessRegistry([])


@pytest.fixture(autouse=True)
def as_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rights of the account that runs `replay`, and no others."""
    begin = Eraser.__init__

    def with_rights(made: Eraser, log: EventLog, *registries: Any) -> None:
        begin(made, LogWithRights(log, Program.OPERATOR), *registries)

    monkeypatch.setattr(Eraser, "__init__", with_rights)


def answering(log: MemoryLog, work: Callable[[], None]) -> None:
    """Let the owners work as soon as a request is sent."""
    submit = log.submit

    def submitted(entry: Entry, partition: int) -> Future[int]:
        done = submit(entry, partition)
        if entry.topic in topics.BY_KEY:
            work()
        return done

    log.submit = submitted  # type: ignore[method-assign]


def counted(*, events: int = 3) -> tuple[Counters, Eraser]:
    counters, store = Counters(), MemoryStore()
    counters.send(events=events)
    counters.serve(store)
    answering(counters.log, lambda: counters.serve(store))
    return counters, Eraser(counters.log, REGISTRY, NONE)


def tombstones(log: MemoryLog, topic: str) -> list[str]:
    found = [partition for p in range(log.partitions) for partition in log.read(topic, p, 0)]
    return [record.key for record in found if record.value is None]


def test_the_names_of_streams_and_events_are_told_apart() -> None:
    counters = Counters()
    counters.send("c", events=2)
    counters.send("c/2")
    counters.send("d/7")
    counters.serve()
    assert (find(counters.log, "counter/c").stream, find(counters.log, "counter/c").version) == ("counter/c", None)
    event = find(counters.log, "counter/c/1")
    assert (event.stream, event.version, [each.id for each in event.stored]) == ("counter/c", 1, ["counter/c/1"])
    assert find(counters.log, "counter/d/7").version is None
    with pytest.raises(AmbiguousTarget, match="--stream or --event"):
        find(counters.log, "counter/c/2")
    assert find(counters.log, "counter/c/2", is_stream=True).stream == "counter/c/2"
    assert find(counters.log, "counter/c/2", is_event=True).version == 2
    for name in ("counter/x", "counter/c/3", "counter/c/0", "counter", "7", "", "counter/c/٢"):
        with pytest.raises(NothingToErase):
            find(counters.log, name)


@pytest.mark.parametrize("maximum", [10_000, 2])
def test_a_whole_stream_is_erased(maximum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "MAX_ERASED", maximum)
    counters, eraser = counted(events=5)
    target = find(counters.log, "counter/c")
    assert eraser.erase(target) == 5
    assert tombstones(counters.log, topics.EVENTS) == [f"counter/c/{n}" for n in range(1, 6)]
    assert counters.snapshot() == (0, 5)
    assert eraser.erase(find(counters.log, "counter/c")) == 5, "it can be repeated"


def test_one_event_is_erased_and_the_state_is_folded_from_the_others() -> None:
    counters, eraser = counted()
    assert eraser.erase(find(counters.log, "counter/c/3")) == 3
    assert counters.snapshot() == (2, 3), "the total of the second event"
    again = counters.send(by=10)
    counters.serve()
    assert counters.receipt(again).version == 4
    assert eraser.erase(find(counters.log, "counter/c/2")) == 4
    assert tombstones(counters.log, topics.EVENTS) == ["counter/c/3", "counter/c/2"]


def test_a_stream_that_got_another_event_meanwhile_is_folded_again() -> None:
    counters, eraser = counted()
    target = find(counters.log, "counter/c/2")
    counters.send(by=10)
    counters.serve()
    assert eraser.erase(target) == 4
    assert counters.snapshot() == (13, 4)


def test_a_stream_whose_last_events_are_gone_keeps_the_version_that_its_owner_knows() -> None:
    counters, eraser = counted()
    eraser.erase(find(counters.log, "counter/c/3"))
    counters.compact(topics.EVENTS, "counter/c/3")
    assert eraser.erase(find(counters.log, "counter/c/1")) == 3
    assert counters.snapshot() == (2, 3)


def test_a_stream_of_which_only_a_snapshot_is_left_is_erased() -> None:
    """As after tombstones that somebody appended to its events."""
    counters, eraser = counted()
    counters.send("later")
    counters.serve()
    counters.compact(topics.EVENTS, *(f"counter/c/{n}" for n in (1, 2, 3)))
    assert find(counters.log, "counter/c/2").version == 2
    assert eraser.erase(find(counters.log, "counter/c/2")) == 3
    assert counters.snapshot() == (0, 3)
    with pytest.raises(NothingToErase):
        find(counters.log, "counter/c/4")
    assert eraser.erase(find(counters.log, "counter/c")) == 3


def test_an_event_without_which_the_others_cannot_be_folded_is_refused() -> None:
    counters, eraser = counted()
    records = counters.log._records[topics.EVENTS, 0]
    at = next(n for n, place in enumerate(records) if place and place[0].key == "counter/c/1")
    place = records[at]
    assert place is not None
    records[at] = Record(*_fields(place[0], value=b"{")), place[1]
    with pytest.raises(CannotErase, match="cannot be folded without it"):
        eraser.erase(find(counters.log, "counter/c/2"))
    assert eraser.erase(find(counters.log, "counter/c/1")) == 3, "the unreadable one itself can be erased"


def _fields(record: Record, value: bytes) -> tuple[Any, ...]:
    return record.topic, record.partition, record.offset, record.key, value, record.timestamp_ms


def test_without_a_handler_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "TIMEOUT_S", 0.05)
    counters = Counters()
    counters.send()
    counters.serve()
    with pytest.raises(CannotErase, match="start one"):
        Eraser(counters.log, REGISTRY, NONE).erase(find(counters.log, "counter/c"))


def test_dead_letters_with_the_events_are_removed_and_no_others() -> None:
    counters, eraser = counted()
    events = {record.key: record for record in counters.log.read(topics.EVENTS, 0, 0)}
    erased, other = events["counter/c/2"], events["counter/c/1"]
    command = next(iter(counters.log.read(topics.COMMANDS, 0, 0)))
    patch = orjson.dumps({"p": 0, "o": erased.offset, "i": 0, "c": {}})
    letters = {
        f"events/0/{erased.offset}": erased.value,
        f"events/0/{erased.offset}/router": None,  # too large to be kept
        "process-inbox/0/9": erased.value,
        "patches/3/7": patch,
        f"events/0/{other.offset}": other.value,
        "patches/3/8": orjson.dumps({"p": 0, "o": other.offset}),
        "patches/3/9": b"{",
        "commands/0/0": command.value,
        "commands/0/3-5": None,
    }
    for key, value in letters.items():
        letter = Letter("why", "2026-01-01T00:00:00Z", b"k", value).to_json()
        counters.log.submit(Entry(topics.DEAD_LETTERS, key, letter, 0), 0)
    target = find(counters.log, "counter/c/2")
    copies = eraser.copies(target)
    assert copies.letters == list(letters)[:4]
    eraser.remove(target, copies, end_instances=True)
    assert tombstones(counters.log, topics.DEAD_LETTERS) == list(letters)[:4]
    assert eraser.copies(target).letters == []
    whole = eraser.copies(find(counters.log, "counter/c")).letters
    assert whole == [f"events/0/{other.offset}", "patches/3/8", "commands/0/0"]


def world_with_waiting_events() -> tuple[World, Eraser]:
    """An instance that has stopped at the first event of an order, and one that has not."""
    world = World(random.Random(1))
    world.deploy(counting(raises(ValueError("a bug"))))
    for name in ("bad", "good"):
        world.record_events(f"order/{name}", *history(name))
    world.settle()
    world.restart_all()  # the handler finds the streams that nobody decided
    answering(world.log, world.settle)
    return world, Eraser(world.log, world.commands, world.processes)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_waits_for_an_instance_is_erased_and_the_rest_is_handled(restarts: bool) -> None:
    world, eraser = world_with_waiting_events()
    target = find(world.log, "order/bad/2")
    copies = eraser.copies(target)
    assert copies.instances == ["counting/bad"]
    assert [len(keys) for keys in copies.parked.values()] == [1]
    assert eraser.erase(target) == 3
    assert eraser.remove(target, copies, end_instances=False) == []
    if restarts:
        world.restart_all()
    task, _ = world._tasks[PROCESSES, partition_of("counting/bad", world.log.partitions)]
    assert isinstance(task, ProcessTask)
    assert task.store.count("counting/bad") == 1
    assert world.instance("counting/bad") is not None
    assert world.instance("counting/good") is not None


@pytest.mark.parametrize("restarts", [False, True])
def test_an_instance_is_ended_with_all_that_waits_for_it(restarts: bool) -> None:
    world, eraser = world_with_waiting_events()
    target = find(world.log, "order/bad")
    eraser.erase(target)
    copies = eraser.copies(target)
    assert eraser.remove(target, copies, end_instances=True) == ["counting/bad"]
    if restarts:
        world.restart_all()
        world.settle()
    assert world.instances() == ["counting/good"]
    again = eraser.copies(find(world.log, "order/bad"))
    assert (again.letters, again.parked, again.instances) == ([], {}, [])
    world.record_events("order/bad", ("order.placed", history("bad")[0][1]), first=4)
    world.settle()
    assert world.instance("counting/bad") is not None, "it can begin again"


def test_a_process_that_older_code_runs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "TIMEOUT_S", 0.05)
    world, eraser = world_with_waiting_events()
    monkeypatch.setattr("headwater.commands.reacting.process_task.InstanceErasure.of", lambda _: None)
    target = find(world.log, "order/good")
    with pytest.raises(CannotErase, match="no handler that knows"):
        eraser.remove(target, eraser.copies(target), end_instances=True)
    assert world.instance("counting/good") is not None
