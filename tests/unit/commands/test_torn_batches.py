"""A transaction of which Kafka commits only a part: what was answered becomes true, and no event is there twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from copy import deepcopy
from dataclasses import replace

import pytest

from headwater.commands.codec import read_snapshot
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.resume_offset import resume_offset
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import decode
from headwater.eventlog.memory import MemoryLog, _Outcome, _State
from headwater.eventlog.ports import HANDLER, Record
from headwater.eventlog.topics import COMMANDS, EVENTS, RECEIPTS, SNAPSHOTS
from tests.unit.commands.counted import Counters
from tests.unit.commands.test_handler import REGISTRY, Count, Total, counter

TOPICS = (EVENTS, RECEIPTS, SNAPSHOTS)


def tear(log: MemoryLog, ends: dict[str, int], committed: dict[str, int]) -> None:
    """Abort what was appended since `ends`, but for the first records of each topic, as many as `committed` says."""
    for topic in TOPICS:
        places = log._records.get((topic, 0), [])
        for index in range(ends[topic] + committed[topic], len(places)):
            place = places[index]
            if place is not None:  # the end of the transaction
                places[index] = place[0], _Outcome(_State.ABORTED)


def answers(log: MemoryLog) -> dict[str, Receipt]:
    """What clients were told: every receipt that was ever visible, by command id."""
    found: dict[str, Receipt] = {}
    for record in log.read(RECEIPTS, 0, 0):
        if record.value is not None:
            receipt = Receipt.from_json(record.value)
            first = found.setdefault(receipt.command_id, receipt)
            assert (first.command_id, first.outcome, first.version) == (
                receipt.command_id,
                receipt.outcome,
                receipt.version,
            )
            assert [event.id for event in first.events] == [event.id for event in receipt.events]
    return found


def check(counters: Counters, sent: set[str], registry: CommandRegistry = REGISTRY) -> None:
    """Every command has one answer, its events are there once and at the named places, and snapshots fold them."""
    log = counters.log
    events = [record for record in log.read(EVENTS, 0, 0) if record.key.startswith("counter/")]
    assert [key for key, count in Counter(record.key for record in events).items() if count > 1] == []
    at = {record.key: record.offset for record in events}
    told = answers(log)
    assert told.keys() == sent
    named: list[str] = []
    for command_id in sent:
        receipt = counters.receipt(command_id)
        named += [event.id for event in receipt.events]
        assert {event.id: event.position.offset for event in receipt.events} == {
            event.id: at[event.id] for event in receipt.events
        }
    assert sorted(named) == sorted(at)
    totals: dict[str, tuple[int, int]] = {}
    for record in events:
        event = decode(record.value)
        version = totals.get(event.stream, (0, 0))[1]
        assert event.sequence == version + 1
        totals[event.stream] = event.data["total"], event.sequence
    for stream, expected in totals.items():
        state, version = read_snapshot(registry.aggregates["counter"], log.last(SNAPSHOTS, 0, stream) or b"")
        assert (state.total, version) == expected


def ends_of(log: MemoryLog) -> dict[str, int]:
    return {topic: len(log._records.get((topic, 0), [])) for topic in TOPICS}


@pytest.mark.parametrize("seed", range(200))
def test_a_torn_batch_is_completed_not_repeated(seed: int) -> None:
    chance = random.Random(seed)
    counters, store, sent = Counters(), MemoryStore(), set[str]()
    for _ in range(chance.randrange(2, 8)):
        for _ in range(chance.randrange(1, 6)):
            by, name = chance.choice([1, 2, 5, -1]), chance.choice("abc")
            sent.add(counters.send(name, by, events=chance.choice([1, 1, 2, 3])))
        if chance.random() < 0.3:  # a new owner knows nothing
            store = MemoryStore()
        log = counters.log
        with closing(log.own(0)) as writer:
            fails = chance.random() < 0.7
            task = CommandTask(log, REGISTRY, 0, deepcopy(store) if fails else store)
            task.restore(writer, lambda: False)
            start = resume_offset(log, HANDLER, writer)
            records: list[Record] = list(log.read(COMMANDS, 0, start))
            records = records[: chance.randrange(1, len(records) + 1)]
            before = ends_of(log)
            task.work(writer, records)
            if not fails:
                continue
            after = ends_of(log)
            tear(log, before, {topic: chance.randrange(after[topic] - before[topic] + 1) for topic in TOPICS})
    counters.serve(store if chance.random() < 0.5 else None)
    counters.serve(store if chance.random() < 0.5 else None)
    check(counters, sent)


def torn_after(counters: Counters, committed: dict[str, int]) -> None:
    """Let an owner decide everything in one transaction, of which these numbers of records are committed."""
    before = ends_of(counters.log)
    counters.serve()
    tear(counters.log, before, {topic: committed.get(topic, 0) for topic in TOPICS})


def test_receipts_without_events_become_true(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    counters.send(by=1)
    counters.serve()
    lost = counters.send(by=4, events=2)
    torn_after(counters, {RECEIPTS: 1, SNAPSHOTS: 9})
    told = counters.receipt(lost)
    later = counters.send(by=8)
    counters.serve()
    assert "Kafka has committed a part of a transaction" in caplog.text
    assert (counters.receipt(lost).version, counters.receipt(later).version) == (told.version, told.version + 1)
    assert counters.event_ids() == [f"counter/c/{version}" for version in (1, 2, 3, 4)]


def test_events_without_receipts_are_adopted_with_their_positions() -> None:
    counters = Counters()
    counters.send(by=1)
    counters.serve()
    torn = counters.send(by=4, events=2)
    torn_after(counters, {EVENTS: 2})
    places = [
        record.offset for record in counters.log.read(EVENTS, 0, 0) if record.key in ("counter/c/2", "counter/c/3")
    ]
    counters.serve()
    assert [event.position.offset for event in counters.receipt(torn).events] == places
    check(counters, {"id1", "id2"})


def test_rules_that_changed_meanwhile_do_not_contradict_the_log() -> None:
    counters = Counters()
    counters.serve()
    torn = counters.send(by=4)
    torn_after(counters, {EVENTS: 1})

    def decide(command: Count, state: Total) -> Iterable[Event]:
        return counter.decide(command.model_copy(update={"by": 9}), state)

    changed = replace(counter, decide=decide)
    counters.serve(registry=CommandRegistry([("here", changed)]))
    assert counters.receipt(torn).version == 1
    assert counters.snapshot() == (4, 1)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("name", ["c", "new"])
def test_events_whose_commands_are_gone_are_part_of_their_stream_at_once(
    name: str, warm: bool, caplog: pytest.LogCaptureFixture
) -> None:
    counters, store = Counters(), MemoryStore()
    counters.send(by=1)
    counters.serve(store)
    counters.send(name, by=4)
    kept = counters.send(name, by=2, events=2)
    torn_after(counters, {EVENTS: 2, SNAPSHOTS: 1})
    counters.log.delete(COMMANDS, 0, before=2)
    with closing(counters.log.own(0)) as writer:
        task = CommandTask(counters.log, REGISTRY, 0, store if warm else MemoryStore())
        task.restore(writer, lambda: False)
    assert counters.snapshot(name) == ((5, 2) if name == "c" else (4, 1))
    for _ in range(2):
        caplog.clear()
        counters.serve()
    assert "a part of a transaction" not in caplog.text
    first = 3 if name == "c" else 2
    assert [event.id for event in counters.receipt(kept).events] == [
        f"counter/{name}/{first + each}" for each in (0, 1)
    ]
    later = counters.send(name, by=8)
    counters.serve()
    assert counters.receipt(later).version == first + 2
    assert counters.log.last(SNAPSHOTS, 0, "streams") == (b"1" if name == "c" else b"2")


def test_an_owner_that_has_only_events_without_commands_finds_nothing_torn_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = Counters()
    counters.send(by=1)
    counters.serve()
    counters.send(by=4)
    torn_after(counters, {EVENTS: 1})
    counters.log.delete(COMMANDS, 0, before=2)
    counters.serve()
    assert counters.snapshot() == (5, 2)
    caplog.clear()
    counters.serve()
    assert "a part of a transaction" not in caplog.text
