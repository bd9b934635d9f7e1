"""A worker over the log in memory: what it does when its disk is full, or its last transaction is in doubt."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import LocalStateError
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionOwner, PartitionWorker, run_together
from headwater.commands.owning.resume_offset import resume_offset
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import HEARTBEAT, Envelope, decode, encode
from headwater.eventlog.errors import RecordsLost
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import HANDLER, NEXT_OFFSET, PROCESSES, ROUTER, Entry, PartitionWriter, Record, Role
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, INBOX, RECEIPTS, SNAPSHOTS
from tests.support.receipt_keys import short_key
from tests.support.waiting import BOUND_S, eventually

REGISTRY = CommandRegistry.load(["listings"])
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
        if self._disk.fail_after_commit and "c0" in map(short_key, receipts) and self._disk.opened == 1:
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
        records = tail.poll(10, 240.0)
        assert records, "no receipt came"
        found += [Receipt.from_json(record.value or b"") for record in records]
    return found


def events(log: MemoryLog) -> list[str]:
    envelopes = [decode(record.value) for record in log.read(EVENTS, 0, 0)]
    return [envelope.id for envelope in envelopes if envelope.type != HEARTBEAT]


def test_nothing_is_acknowledged_while_the_disk_is_full_and_all_is_when_there_is_room(disk: Disk) -> None:
    stopped = threading.Event()
    serving = threading.Thread(target=PartitionOwner(disk.log, HANDLER, disk.open).run, args=[stopped], daemon=True)
    serving.start()
    submit(disk.log, 0)
    assert disk.refused.wait(240)
    assert (list(disk.log.read(RECEIPTS, 0, 0)), list(disk.log.read(EVENTS, 0, 0))) == ([], [])
    disk.room.set()
    (receipt,) = receipts(disk.log, 1)
    stopped.set()
    serving.join()
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
    class Crowd(threading.Event):
        """Two more commands come while the worker waits, however long that takes."""

        def wait(self, timeout: float | None = None) -> bool:
            for number in (3, 4):
                submit(disk.log, number, price=number + 1)
            return False

    monkeypatch.setattr("headwater.commands.owning.ownership.until_round_s", lambda: BOUND_S)
    disk.room.set()
    submit(disk.log, 0)
    submit(disk.log, 1, price=2)
    worker = PartitionWorker(disk.log, HANDLER, 0, disk.open)
    monkeypatch.setattr(worker, "_stopped", Crowd())
    worker.start()
    receipts(disk.log, 2)
    submit(disk.log, 2, price=3)
    receipts(disk.log, 5)
    worker.stop()
    worker.join()
    worker.check()
    ends = [int(record.value or b"") for record in disk.log.read(SNAPSHOTS, 0, 0) if record.key == NEXT_OFFSET]
    assert ends == [2, 5]


class Mistaken:
    """A task with a mistake: it raises `error` while a record that is at fault is among those it works on."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.worked: list[int] = []

    def __call__(self, _: int) -> Mistaken:
        return self

    def restore(self, writer: object, stopped: object) -> str:
        return "nothing"

    def wait_s(self) -> float:
        return 60.0

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        if self.error is not None and any(record.key == "fault" for record in records):
            raise self.error
        transaction = writer.begin()
        transaction.commit(records[-1].offset + 1)
        self.worked += [record.offset for record in records]

    def close(self) -> None:
        pass


def test_a_mistake_in_a_task_ends_the_process_after_as_many_attempts(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.commands.owning.ownership.MAX_ATTEMPTS", 2)
    disk.log.submit(Entry(COMMANDS, "fault", b"", 0), 0)
    with pytest.raises(ZeroDivisionError):
        PartitionOwner(disk.log, HANDLER, Mistaken(ZeroDivisionError("a mistake"))).run(threading.Event())
    assert any(line.exc_info and "attempt 1 failed" in line.getMessage() for line in caplog.records)


def test_records_that_are_lost_end_no_process_which_does_other_work(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator decides, and it goes on by itself."""
    for name, value in (("MAX_ATTEMPTS", 2), ("MAX_PAUSE_S", 0.01)):
        monkeypatch.setattr(f"headwater.commands.owning.ownership.{name}", value)
    task = Mistaken(RecordsLost("events", 0, 5, "ends at offset 3"))
    worker = PartitionWorker(disk.log, HANDLER, 0, task)
    disk.log.submit(Entry(COMMANDS, "fault", b"", 0), 0)
    worker.start()
    eventually(lambda: worker.attempts > 3)
    worker.check()
    task.error = None
    eventually(lambda: task.worked == [0])
    worker.stop()
    worker.join()


@pytest.mark.parametrize("error", [ZeroDivisionError("a mistake"), SystemExit(3), MemoryError()])
def test_what_comes_before_a_record_that_a_task_fails_on_goes_through_and_the_rest_when_it_is_mended(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr("headwater.commands.owning.ownership.MAX_PAUSE_S", 0.01)
    monkeypatch.setattr("headwater.commands.owning.ownership.BATCH_RECORDS", 4)
    for key in ("good", "good", "good", "fault", "good"):
        disk.log.submit(Entry(COMMANDS, key, b"", 0), 0)
    task = Mistaken(error)
    worker = PartitionWorker(disk.log, HANDLER, 0, task)
    worker.start()
    eventually(lambda: task.worked == [0, 1, 2])
    worker.check()
    task.error = None
    eventually(lambda: task.worked == [0, 1, 2, 3, 4])
    worker.stop()
    worker.join()
    worker.check()


@pytest.mark.parametrize("role", [HANDLER, PROCESSES])
def test_what_was_deleted_before_it_was_read_is_told_once_and_the_rest_is_read(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog(partitions=1)
    for number in range(5):
        log.submit(Entry(role.reads, f"k{number}", b"{}", 0), 0)
    with closing(log.own(0, role)) as writer:
        writer.begin().commit(1)
        assert resume_offset(log, role, writer) == 1
        log.delete(role.reads, 0, 1)
        assert resume_offset(log, role, writer) == 1
        assert not caplog.text
        log.delete(role.reads, 0, 3)
        for _ in range(2):
            assert resume_offset(log, role, writer) == 3
    ((key, letter),) = [(r.key, Letter.from_json(r.value or b"")) for r in log.read(DEAD_LETTERS, 0, 0)]
    assert key == f"{role.reads}/0/1-2"
    assert f'offsets 1 to 2 of partition 0 of "{role.reads}" were deleted' in letter.reason
    assert caplog.text.count("were deleted before") == 1


@pytest.mark.parametrize("role", [HANDLER, PROCESSES])
def test_a_topic_that_was_made_again_is_read_from_its_start(
    role: Role, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog(partitions=2)
    for number in range(9):
        log.submit(Entry(role.reads, f"k{number}", b"{}", 0), 1)
    with closing(log.own(1, role)) as writer:
        writer.begin().commit(7)  # as `begin_at` does, which notes no topic
        for _ in range(2):
            assert resume_offset(log, role, writer) == 7
        assert not caplog.text
    monkeypatch.setattr(log, "incarnation", lambda topic: f"new/{topic}")
    del log._records[role.reads, 1]
    with closing(log.own(1, role)) as writer:
        assert resume_offset(log, role, writer) == 0
        assert log.next_offset(1, role) == 0
        for number in range(9):  # more than were read of the old one
            log.submit(Entry(role.reads, f"n{number}", b"{}", 0), 1)
        writer.begin().commit(3)
        assert resume_offset(log, role, writer) == 3
    assert caplog.text.count("is another topic than before") == 1
    assert not list(log.read(DEAD_LETTERS, 0, 0))


def test_a_topic_that_has_lost_its_end_is_read_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    for number in range(9):
        log.submit(Entry(COMMANDS, f"k{number}", b"{}", 0), 0)
    with closing(log.own(0)) as writer:
        writer.begin().commit(7)
        assert resume_offset(log, HANDLER, writer) == 7
        del log._records[COMMANDS, 0][5:]
        for _ in range(2):
            assert resume_offset(log, HANDLER, writer) == 0
    assert caplog.text.count("ends at offset 5") == 1


def test_a_topic_that_is_made_again_while_it_is_read_is_read_from_its_start(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have as many records already as were read of the one before; then nothing else shows it."""
    monkeypatch.setattr("headwater.commands.owning.ownership.TOPIC_LOOK_S", 0.0)
    task, stopped = Mistaken(None), threading.Event()
    for number in range(3):
        disk.log.submit(Entry(COMMANDS, f"k{number}", b"", 0), 0)
    serving = threading.Thread(target=PartitionOwner(disk.log, HANDLER, task).run, args=[stopped], daemon=True)
    serving.start()
    eventually(lambda: task.worked == [0, 1, 2])
    before = disk.log.incarnation
    monkeypatch.setattr(disk.log, "incarnation", lambda topic: f"new/{before(topic)}")
    eventually(lambda: task.worked == [0, 1, 2, 0, 1, 2])
    disk.log.submit(Entry(COMMANDS, "k3", b"", 0), 0)
    eventually(lambda: task.worked == [0, 1, 2, 0, 1, 2, 3])
    stopped.set()
    serving.join()


def test_an_idle_owner_commits_the_place_behind_the_marks_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the deletion of a mark would look like that of a record."""
    monkeypatch.setattr("headwater.commands.owning.ownership.COMMIT_IDLE_S", 0.0)
    log = MemoryLog(partitions=1)
    with closing(log.own(0, ROUTER)) as writer:
        begun = writer.begin()
        begun.append([Entry(INBOX, "p/1", b"{}", 0)])
        begun.commit()
    worker = PartitionWorker(log, PROCESSES, 0, lambda _: Idle())
    worker.start()
    try:
        eventually(lambda: log.next_offset(0, PROCESSES) == log.end(INBOX, 0) == 2)
    finally:
        worker.stop()
        worker.join()
    log.delete(INBOX, 0, 2)
    with closing(log.own(0, PROCESSES)) as writer:
        assert resume_offset(log, PROCESSES, writer) == 2
    assert not list(log.read(DEAD_LETTERS, 0, 0))


class Idle:
    """A task that does nothing, and so commits nothing."""

    def restore(self, writer: object, stopped: Callable[[], bool]) -> str:
        return ""

    def wait_s(self) -> float:
        return 60.0

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
        return

    def close(self) -> None:
        return


def test_how_far_a_partition_is_worked_through_is_shown_and_never_used(disk: Disk) -> None:
    disk.room.set()
    disk.log.shown[HANDLER] = {0: 1_000}
    submit(disk.log, 0)
    stopped = threading.Event()
    owner = PartitionOwner(disk.log, HANDLER, disk.open)
    serving = threading.Thread(target=owner.run, args=[stopped], daemon=True)
    serving.start()
    receipts(disk.log, 1)
    eventually(lambda: disk.log.shown[HANDLER] == {0: disk.log.end(COMMANDS, 0)})
    stopped.set()
    serving.join()


def test_a_handler_that_serves_notices_a_signal_that_another_thread_gets(disk: Disk) -> None:
    """The kernel does not give it to the main thread while a debugger or a profiler holds that."""
    stopped, owner = threading.Event(), PartitionOwner(disk.log, HANDLER, disk.open)

    def signal_itself() -> None:
        time.sleep(0.1)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    disk.room.set()
    before = signal.signal(signal.SIGUSR1, lambda *_: stopped.set())
    thread = threading.Thread(target=signal_itself)
    try:
        thread.start()
        run_together([owner], stopped)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert stopped.is_set()


def test_a_machine_that_cannot_serve_gives_its_partitions_up_until_it_can(disk: Disk) -> None:
    """Healthy members take them over meanwhile; it asks its disk, and joins again once that is well."""
    healthy = threading.Event()

    def check() -> None:
        if not healthy.is_set():
            raise LocalStateError(Path("here"), "no room")

    served = threading.Event()

    class Healthy(Mistaken):
        def work(self, writer: PartitionWriter, records: Sequence[Record]) -> None:
            super().work(writer, records)
            served.set()

    submit(disk.log, 0)
    stopped = threading.Event()
    full = PartitionOwner(disk.log, HANDLER, disk.open, check)
    other = PartitionOwner(disk.log, HANDLER, Healthy(None))
    owners = [threading.Thread(target=each.run, args=[stopped], daemon=True) for each in (full, other)]
    owners[0].start()
    assert disk.refused.wait(BOUND_S)
    owners[1].start()
    assert served.wait(BOUND_S), "the other member got the partition"
    eventually(lambda: not full._workers)
    disk.room.set()
    healthy.set()
    eventually(lambda: len(disk.log._members[HANDLER]) == 2)
    stopped.set()
    for owner in owners:
        owner.join()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_faults_of_the_machine_are_no_faults_of_a_record(number: int, disk: Disk) -> None:
    disk.log.submit(Entry(COMMANDS, "fault", b"", 0), 0)
    worker = PartitionWorker(disk.log, HANDLER, 0, Mistaken(OSError(number, "of the machine")))
    worker.start()
    worker.join()
    worker.check()
    assert isinstance(worker.machine_fault, OSError)
