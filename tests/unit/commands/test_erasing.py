"""Erasing events through the owner of the partition: in its transaction, with the version kept."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from headwater.commands.codec import read_snapshot
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import UnknownCommand
from headwater.commands.handling.erasing import ERASE, Erasure
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.state import MemoryStore
from headwater.eventlog.envelope import decode
from headwater.eventlog.ports import Record
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, SNAPSHOTS
from tests.unit.commands.counted import Counters
from tests.unit.commands.test_handler import REGISTRY, TIME, counter

WHOLE = Erasure(1, 10_000, 3, whole=True)


def erased(counters: Counters) -> list[str]:
    return [record.key for record in counters.log.read(EVENTS, 0, 0) if record.value is None]


def counted(*, events: int = 3) -> Counters:
    counters = Counters()
    counters.send(events=events)
    return counters


@pytest.mark.parametrize("served", [False, True])
def test_a_whole_stream_is_erased_and_keeps_its_version(served: bool) -> None:
    """Whether the owner has its state in memory, or only on its disk."""
    counters, store = counted(), MemoryStore()
    if served:
        counters.serve(store)
    request = counters.erase(WHOLE)
    counters.serve(store)
    receipt = counters.receipt(request)
    assert (receipt.outcome, receipt.version, receipt.type, receipt.events) == ("accepted", 3, ERASE, ())
    assert erased(counters) == [f"counter/c/{n}" for n in (1, 2, 3)]
    assert counters.snapshot() == (0, 3)
    assert read_snapshot(counter, store.snapshot("counter/c") or b"")[0].total == 0
    again = counters.send(by=7)
    counters.serve()
    assert counters.receipt(again).version == 4
    assert counters.snapshot() == (7, 4)


def test_commands_before_and_after_it_in_the_same_transaction_see_it() -> None:
    counters = Counters()
    first, request, second = counters.send(events=2), counters.erase(WHOLE), counters.send(by=5)
    other = counters.send("other")
    counters.serve()
    assert [counters.receipt(each).version for each in (first, request, second, other)] == [2, 2, 3, 1]
    places = {record.key: record.offset for record in counters.log.read(EVENTS, 0, 0)}
    (recorded,) = counters.receipt(other).events
    assert recorded.position.offset == places[recorded.id], "the tombstones are counted in the offsets"
    assert counters.snapshot() == (5, 3)
    assert counters.log.last(SNAPSHOTS, 0, "streams") == b"2"


def test_one_event_is_erased_with_the_state_without_it() -> None:
    counters = counted()
    request = counters.erase(Erasure(2, 2, 3, state='{"total":4}', fields=counter.shape), expected_version=3)
    counters.serve()
    assert counters.receipt(request).outcome == "accepted"
    assert erased(counters) == ["counter/c/2"]
    assert counters.snapshot() == (4, 3)


@pytest.mark.parametrize(
    ("erasure", "expected_version", "outcome", "code"),
    [
        (Erasure(2, 2, 3, state='{"total":4}', fields=counter.shape), 2, "conflict", "wrong_version"),
        (Erasure(2, 2, 3, state='{"total":4}', fields="0" * 16), 3, "failed", "other_state"),
        (Erasure(2, 2, 3), 3, "failed", "other_state"),
        (Erasure(2, 2, 3, state='{"total":"4111 1111"}', fields=counter.shape), 3, "failed", "not_erasable"),
    ],
)
def test_a_request_that_does_not_fit_changes_nothing(
    erasure: Erasure, expected_version: int, outcome: str, code: str
) -> None:
    counters = counted()
    request = counters.erase(erasure, expected_version=expected_version)
    counters.serve()
    receipt = counters.receipt(request)
    assert receipt.error is not None
    assert (receipt.outcome, receipt.version, receipt.error.code) == (outcome, 3, code)
    assert "4111" not in receipt.error.message
    assert erased(counters) == []
    assert counters.snapshot() == (3, 3)


@pytest.mark.parametrize("asked", [False, True])
def test_an_unknown_stream_has_nothing_to_erase(asked: bool) -> None:
    counters = Counters()
    if asked:
        counters.send("nobody", by=-1)  # it is rejected, but the owner remembers that the stream is empty
    request = counters.erase(WHOLE, "nobody")
    counters.serve()
    receipt = counters.receipt(request)
    assert (receipt.outcome, receipt.error and receipt.error.code) == ("rejected", "no_such_stream")
    assert counters.snapshot("nobody") is None


@pytest.mark.parametrize("erasure", [Erasure(0, 1, 1), Erasure(2, 1, 1), Erasure(1, 10_001, 1, whole=True)])
def test_a_request_without_bounds_is_a_dead_letter(erasure: Erasure) -> None:
    counters = counted()
    counters.erase(erasure)
    after = counters.send("later")
    counters.serve()
    assert counters.receipt(after).outcome == "accepted"
    assert erased(counters) == []
    assert len(list(counters.log.read(DEAD_LETTERS, 0, 0))) == 1


def test_a_stream_of_an_aggregate_that_is_not_declared_is_erased_too() -> None:
    counters = counted()
    counters.serve()
    counters.erase(WHOLE)
    counters.serve(registry=CommandRegistry([]))
    assert erased(counters) == [f"counter/c/{n}" for n in (1, 2, 3)]
    again = counters.send(by=7)
    counters.serve(registry=REGISTRY)
    assert counters.receipt(again).version == 4
    assert counters.snapshot() == (7, 4)


def test_a_stream_that_cannot_be_folded_is_erased_and_works_again(caplog: pytest.LogCaptureFixture) -> None:
    counters = counted()
    counters.serve()
    counters.tombstone(SNAPSHOTS, "counter/c")
    places = counters.log._records[EVENTS, 0]
    places[:] = [place and (replaced(place[0]), place[1]) for place in places]
    caplog.set_level(logging.CRITICAL)
    store = MemoryStore()
    counters.serve(store)
    failed = counters.send()
    counters.serve(store)
    assert counters.receipt(failed).outcome == "failed"
    counters.erase(WHOLE)
    again = counters.send(by=7)
    counters.serve(store)
    assert counters.receipt(again).version == 4


def replaced(record: Record) -> Record:
    return structs.replace(record, value=b"{") if record.key.startswith("counter/") else record


def test_a_stream_of_many_events_is_erased_in_parts() -> None:
    counters = counted(events=5)
    for first in (1, 3, 5):
        counters.erase(Erasure(first, first + 1, 5, whole=True))
    counters.serve()
    assert erased(counters) == [f"counter/c/{n}" for n in range(1, 6)]
    assert counters.snapshot() == (0, 5)


def test_no_client_can_send_the_request() -> None:
    """Every sender of commands looks up their type here; `test_problems.py` sends it to the API."""
    with pytest.raises(UnknownCommand):
        REGISTRY.command(ERASE)


def test_the_disk_has_no_earlier_state_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "0"
    store = DiskStore(folder, "a", DiskBudget())
    private = secrets.token_bytes(32)  # RocksDB does not compress it

    def files() -> list[str]:
        return [path.name for path in folder.iterdir() if private in path.read_bytes()]

    store.apply({"counter/c": private, "counter/d": b"4999"}, {}, {})
    store.purge(["counter/d"])
    assert len(files()) == 1, "it is in a file of its own kind, no longer in the write-ahead log"
    store.apply({"counter/c": b"{}"}, {}, {})
    assert files()
    store.purge(["counter/c"])
    assert files() == []
    assert (store.snapshot("counter/c"), store.snapshot("counter/d")) == (b"{}", b"4999")
    store.close()


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_no_event_after_an_erasure_is_earlier_than_the_one_before_it(served: bool, whole: bool) -> None:
    """A command may have waited in an outbox, or its sender's clock may be behind. served: see above."""
    counters, store = Counters(), MemoryStore()
    counters.send(by=1, time=TIME + timedelta(microseconds=900))
    if served:
        counters.serve(store)
    counters.erase(WHOLE if whole else Erasure(1, 1, 1, state='{"total":0}', fields=counter.shape))
    counters.send(by=2, time=TIME - timedelta(hours=3))
    counters.serve(store)
    counters.send(by=3, time=TIME - timedelta(hours=2))
    counters.serve()
    times = [
        decode(record.value).time for record in counters.log.read(EVENTS, 0, 0) if record.value and record.key[0] == "c"
    ]
    assert times == [TIME + timedelta(microseconds=900)] * 3


def test_no_event_is_earlier_than_the_one_before_it_by_a_part_of_a_millisecond() -> None:
    counters, times = Counters(), [900, 100, -5_000, 950]
    for time in times:
        counters.send(time=TIME + timedelta(microseconds=time))
        counters.serve()
    found = [decode(record.value).time for record in counters.log.read(EVENTS, 0, 0) if record.key[0] == "c"]
    assert found == [TIME + timedelta(microseconds=each) for each in (900, 900, 900, 950)]


def test_who_gets_a_partition_back_keeps_nothing_that_was_erased_meanwhile(tmp_path: Path) -> None:
    """Nor one that was killed between the commit and the purge: the log counts erasures."""
    counters, private = Counters(), secrets.token_hex(32)
    folder = tmp_path / "0"

    def files() -> list[str]:
        return [path.name for path in folder.iterdir() if private.encode() in path.read_bytes()]

    counters.send("d")
    counters.send(by=1)
    counters.serve(DiskStore(folder, "a", DiskBudget()))
    store = DiskStore(folder, "a", DiskBudget())
    store.apply({"counter/c": private.encode()}, {}, {})  # as if its state had a private text
    store.purge(["counter/d"])
    store.close()
    assert files()
    counters.erase(Erasure(1, 1, 1, whole=True))
    counters.serve()  # another owner
    counters.serve(DiskStore(folder, "a", DiskBudget()))
    assert files() == []
