"""A stream whose snapshot is gone goes on from its events: no version is used twice, whoever deleted the snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.commands.handling import command_task
from headwater.commands.handling.restore import STREAMS_KEY, restore
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.state import MemoryStore, StateStore
from headwater.eventlog.ports import NEXT_OFFSET, Record
from headwater.eventlog.topics import COMMANDS, EVENTS, RECEIPTS, SNAPSHOTS
from tests.unit.commands.counted import Counters, with_state_version
from tests.unit.commands.test_handler import REGISTRY


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    opened: StateStore = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "0", "a", DiskBudget())
    yield opened
    opened.close()


class StillOpen:
    """A store that its owner does not close."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return (lambda: None) if name == "close" else getattr(self._store, name)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("cold", [False, True])
def test_a_tombstone_on_a_snapshot_does_not_begin_the_stream_again(
    store: StateStore, cold: bool, compacted: bool
) -> None:
    counters = Counters()
    local = StillOpen(store)
    counters.send(events=3)
    counters.send("other")
    counters.serve(local)  # type: ignore[arg-type]
    counters.tombstone(SNAPSHOTS, "counter/c")
    if compacted:
        counters.compact(SNAPSHOTS, "counter/c")
    again = counters.send(by=10)
    counters.serve(None if cold else local)  # type: ignore[arg-type]
    assert counters.receipt(again).version == 4
    assert counters.event_ids() == [*(f"counter/c/{n}" for n in (1, 2, 3)), "counter/other/1", "counter/c/4"]
    assert counters.snapshot() == (13, 4)


def test_a_log_of_an_earlier_release_with_a_compacted_tombstone_goes_on_too() -> None:
    counters = Counters()
    counters.send(events=3)
    counters.serve()
    counters.compact(SNAPSHOTS, "counter/c", STREAMS_KEY)
    again = counters.send()
    counters.serve()
    assert counters.receipt(again).version == 4


def test_a_missing_snapshot_is_written_again_without_a_command() -> None:
    counters = Counters()
    counters.send(events=2)
    counters.serve()
    counters.tombstone(SNAPSHOTS, "counter/c")
    counters.serve()
    assert counters.snapshot() == (2, 2)


def test_a_tombstone_during_a_restore_or_while_an_owner_serves_is_found_by_the_next() -> None:
    counters = Counters()
    counters.send(events=2)
    store = MemoryStore()
    with counters.owner(store) as task:
        counters.tombstone(SNAPSHOTS, "counter/c")
        second = counters.send()
        with_writer = counters.log.own(0)
        counters.work(with_writer, task)
        assert counters.receipt(second).version == 3
        counters.tombstone(SNAPSHOTS, "counter/c")
    counters.compact(SNAPSHOTS, "counter/c")
    third = counters.send()
    counters.serve()  # on another disk
    assert counters.receipt(third).version == 4
    fourth = counters.send()
    counters.serve(store)
    assert counters.receipt(fourth).version == 5


def test_the_last_version_is_not_used_again_if_its_event_was_erased_as_well() -> None:
    counters = Counters()
    counters.send(events=3)
    store = MemoryStore()
    counters.serve(store)
    counters.tombstone(EVENTS, "counter/c/3")
    counters.tombstone(SNAPSHOTS, "counter/c")
    again = counters.send(by=10)
    counters.serve()  # on a cold disk: the tombstone counts
    assert counters.receipt(again).version == 4
    assert counters.snapshot() == (12, 4)  # 1 and 2 are left of 1, 2 and 3


def test_the_last_version_that_a_disk_knows_counts_even_if_its_tombstone_is_gone() -> None:
    counters = Counters()
    counters.send(events=3)
    store = MemoryStore()
    counters.serve(store)
    counters.compact(EVENTS, "counter/c/3")
    counters.tombstone(SNAPSHOTS, "counter/c")
    again = counters.send()
    counters.serve(store)
    assert counters.receipt(again).version == 4


def test_a_stream_of_which_nothing_is_left_begins_again() -> None:
    counters = Counters()
    counters.send()
    counters.serve()
    counters.send("later")
    counters.serve()
    counters.compact(EVENTS, "counter/c/1")
    counters.compact(SNAPSHOTS, "counter/c")
    counters.tombstone(SNAPSHOTS, "counter/c")
    again = counters.send()
    counters.serve()
    assert counters.receipt(again).version == 1
    counters.serve()
    assert counters.log.last(SNAPSHOTS, 0, STREAMS_KEY) == b"2"


def test_all_snapshots_may_be_gone_and_the_events_are_searched_once() -> None:
    counters = Counters()
    for name in "abc":
        counters.send(name, events=2)
    counters.serve()
    records = counters.log._records[SNAPSHOTS, 0]
    records[:] = [None if place is not None and place[0].key != NEXT_OFFSET else place for place in records]
    counters.serve()
    assert [counters.snapshot(name) for name in "abc"] == [(2, 2)] * 3
    read = events_read(counters)
    counters.serve()
    assert read == []


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_search_that_is_broken_off_is_finished_by_the_next_restore(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.handling.refold.CHUNK_RECORDS", 2)
    counters = Counters()
    for name in "abc":
        counters.send(name, events=2)
    counters.serve()
    counters.compact(SNAPSHOTS, "counter/a", "counter/b", "counter/c")
    store = MemoryStore()
    left = iter(range(100))
    restore(counters.log, REGISTRY, 0, store, lambda: next(left) >= looks + 2)
    again = [counters.send(name) for name in "abc"]
    counters.serve(store)
    assert [counters.receipt(each).version for each in again] == [3, 3, 3]


def test_snapshots_that_are_all_there_cost_no_search() -> None:
    counters = Counters()
    counters.send("a")
    counters.send("b")
    counters.serve()
    assert counters.log.last(SNAPSHOTS, 0, STREAMS_KEY) == b"2"
    counters.send("a")
    read = events_read(counters)
    counters.serve()
    counters.serve()
    assert read == []
    assert counters.log.last(SNAPSHOTS, 0, STREAMS_KEY) == b"2"


@pytest.mark.parametrize("bound", [{"MAX_PENDING_STREAMS": 2}, {"MAX_PENDING_BYTES": 1}, {}])
def test_states_that_were_folded_again_are_written_to_the_log_in_batches(
    store: StateStore, bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bound.items():
        monkeypatch.setattr(command_task, name, value)
    counters = Counters()
    for name in "abcde":
        counters.send(name)
    counters.serve()
    changed = with_state_version(2)
    end = counters.log.end(SNAPSHOTS, 0)
    counters.serve(store, changed)
    written = [r.key for r in counters.log.read(SNAPSHOTS, 0, end) if r.key.startswith("counter/")]
    assert sorted(written) == [f"counter/{name}" for name in "abcde"]
    assert [counters.snapshot(name, changed) for name in "abcde"] == [(1, 1)] * 5
    ends = transactions(counters, end)
    assert max(ends) <= bound.get("MAX_STREAMS", 5)
    assert len(ends) == {"MAX_PENDING_STREAMS": 3, "MAX_PENDING_BYTES": 5}.get(next(iter(bound), ""), 1)
    read = events_read(counters)
    counters.serve(None, changed)  # a cold disk folds nothing
    assert read == []


def test_an_owner_that_ends_early_writes_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_task, "MAX_PENDING_STREAMS", 2)
    counters = Counters()
    for name in "abcde":
        counters.send(name)
    counters.serve()
    store, changed = MemoryStore(), with_state_version(2)
    with pytest.raises(AssertionError):
        monkeypatch.setattr("tests.unit.commands.counted.range", lambda _: [0], raising=False)
        counters.serve(store, changed)
    monkeypatch.setattr("tests.unit.commands.counted.range", range, raising=False)
    counters.send("a", by=5)
    counters.serve(store, changed)
    assert [counters.snapshot(name, changed) for name in "abcde"] == [(6, 2), *[(1, 1)] * 4]


def events_read(counters: Counters) -> list[int]:
    """Gets the offset of each read of `events` from now on, but for those that look for a torn batch at their end."""
    found: list[int] = []
    whole = counters.log.read

    def noting(topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        if topic == EVENTS and end is not None:
            found.append(start)
        return whole(topic, partition, start, end)

    counters.log.read = noting  # type: ignore[method-assign]
    return found


def transactions(counters: Counters, start: int) -> list[int]:
    """How many snapshots of counters each transaction from an offset on has, without those that have none."""
    sizes = [0]
    for place in counters.log._records[SNAPSHOTS, 0][start:]:
        if place is None:
            sizes.append(0)
        else:
            sizes[-1] += place[0].key.startswith("counter/")
    return [size for size in sizes if size]


def test_a_store_with_a_batch_that_the_log_has_lost_is_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Others have its offsets since, so the ends of topics do not show it."""
    counters, store = Counters(), MemoryStore()
    topics = (COMMANDS, EVENTS, RECEIPTS, SNAPSHOTS)
    counters.send(by=1)
    counters.serve(store)
    kept = {topic: len(counters.log._records[topic, 0]) for topic in topics}
    counters.send("lost", by=10)
    counters.serve(store)
    for topic, number in kept.items():
        del counters.log._records[topic, 0][number:]
    for _ in range(4):
        counters.send(by=5)
        counters.serve()  # on another machine
    counters.send("lost", by=3)
    counters.serve(store)
    assert (counters.snapshot(), counters.snapshot("lost")) == ((21, 5), (3, 1))
    assert caplog.text.count("has a batch that the log has lost") == 1
    counters.serve(store)
    assert caplog.text.count("has a batch that the log has lost") == 1
