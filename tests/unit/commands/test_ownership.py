"""A worker over the log in memory: what it does when its disk is full, or its last transaction is in doubt."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commands.errors import LocalStateError
from commands.ownership import PartitionOwner, PartitionWorker
from commands.receipt import Receipt
from commands.registry import CommandRegistry
from commands.service import CommandTask
from commands.state import MemoryStore
from eventlog.envelope import HEARTBEAT, Envelope, decode, encode
from eventlog.memory import MemoryLog
from eventlog.ports import HANDLER, NEXT_OFFSET, Entry
from eventlog.topics import COMMANDS, EVENTS, RECEIPTS, SNAPSHOTS

REGISTRY = CommandRegistry.load()
TIME = datetime(2026, 1, 2, tzinfo=UTC)
LISTED = {"listing_id": "L1", "city": "S", "zip": "95838", "property_type": "Condo", "beds": 1, "baths": 1.0}
LISTED |= {"square_feet": 1, "price": 1, "latitude": 1.0, "longitude": 1.0}


class Disk:
    """What the stores of a test share: whether there is room, and what they keep when they are closed."""

    def __init__(self) -> None:
        self.room = threading.Event()
        self.refused = threading.Event()
        self.fail_after_commit = False
        self.opened = 0

    def open(self, _: int) -> CommandTask:
        self.opened += 1
        return CommandTask(self.log, REGISTRY, 0, Store(self))

    log: MemoryLog


class Store(MemoryStore):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def check(self) -> None:
        if not self._disk.room.is_set():
            self._disk.refused.set()
            raise LocalStateError(Path("here"), "no room")

    def apply(
        self,
        snapshots: Mapping[str, bytes | None],
        receipts: Mapping[str, bytes | None],
        positions: Mapping[str, int],
        time_ms: int = 0,
    ) -> None:
        if self._disk.fail_after_commit and "c0" in receipts and self._disk.opened == 1:
            raise LocalStateError(Path("here"), "the disk is gone")
        super().apply(snapshots, receipts, positions, time_ms)


@pytest.fixture
def disk() -> Disk:
    disk = Disk()
    disk.log = MemoryLog(partitions=1)
    return disk


def submit(log: MemoryLog, number: int, price: int | None = None) -> None:
    body = {"listing_id": "L1", "price": price} if price else LISTED
    command_type = "listing.change_price" if price else "listing.list_property"
    envelope = Envelope(f"c{number}", command_type, "listing/L1", TIME, body)
    log.submit(Entry(COMMANDS, "listing/L1", encode(envelope), 0), 0).result()


def receipts(log: MemoryLog, count: int) -> list[Receipt]:
    tail = log.tail(RECEIPTS, {0: 0})
    found: list[Receipt] = []
    while len(found) < count:
        records = tail.poll(10, 20.0)
        assert records, "no receipt came"
        found += [Receipt.from_json(record.value or b"") for record in records]
    return found


def events(log: MemoryLog) -> list[str]:
    envelopes = [decode(record.value) for record in log.read(EVENTS, 0, 0)]
    return [envelope.id for envelope in envelopes if envelope.type != HEARTBEAT]


def test_nothing_is_acknowledged_while_the_disk_is_full_and_all_is_when_there_is_room(disk: Disk) -> None:
    worker = PartitionWorker(disk.log, HANDLER, 0, disk.open)
    worker.start()
    submit(disk.log, 0)
    assert disk.refused.wait(20)
    assert (list(disk.log.read(RECEIPTS, 0, 0)), list(disk.log.read(EVENTS, 0, 0))) == ([], [])
    disk.room.set()
    (receipt,) = receipts(disk.log, 1)
    worker.stop()
    worker.join()
    worker.check()
    assert (receipt.outcome, events(disk.log)) == ("accepted", ["listing/L1/1"])


def test_a_store_that_fails_after_the_commit_is_restored_and_nothing_is_repeated(disk: Disk) -> None:
    disk.fail_after_commit = True
    disk.room.set()
    worker = PartitionWorker(disk.log, HANDLER, 0, disk.open)
    worker.start()
    submit(disk.log, 0)
    receipts(disk.log, 1)
    submit(disk.log, 0)
    submit(disk.log, 1, price=5)
    found = receipts(disk.log, 3)
    worker.stop()
    worker.join()
    worker.check()
    assert disk.opened > 1
    assert {receipt.command_id: receipt.version for receipt in found} == {"c0": 1, "c1": 2}
    assert events(disk.log) == ["listing/L1/1", "listing/L1/2"]


def test_where_commands_crowd_a_transaction_takes_those_that_come_while_it_waits(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.ownership.CROWDED_S", 1.0)
    disk.room.set()
    submit(disk.log, 0)
    submit(disk.log, 1, price=2)
    worker = PartitionWorker(disk.log, HANDLER, 0, disk.open)
    worker.start()
    receipts(disk.log, 2)
    for number in (2, 3, 4):
        submit(disk.log, number, price=number + 1)
    receipts(disk.log, 5)
    worker.stop()
    worker.join()
    worker.check()
    ends = [int(record.value or b"") for record in disk.log.read(SNAPSHOTS, 0, 0) if record.key == NEXT_OFFSET]
    assert ends == [2, 5]


def test_a_worker_that_gives_up_ends_the_process(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.ownership.MAX_ATTEMPTS", 2)
    with pytest.raises(LocalStateError, match="no room"):
        PartitionOwner(disk.log, HANDLER, disk.open).run(threading.Event())


def test_a_mistake_in_a_task_ends_the_process(disk: Disk) -> None:
    def broken(_: int) -> CommandTask:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        PartitionOwner(disk.log, HANDLER, broken).run(threading.Event())
