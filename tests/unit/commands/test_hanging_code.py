"""A rule that does not return delays its own partition only, and is named."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.ownership import PartitionOwner
from headwater.commands.owning.running_code import SlowCode, running, slow_code
from headwater.commands.receipt import Receipt
from headwater.eventlog.envelope import CLIENT, Envelope, encode, partition_of
from headwater.eventlog.memory import MemoryLog, MemoryWriter
from headwater.eventlog.ports import HANDLER, Entry, RevokedCallback, Role
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import COMMANDS, RECEIPTS, SLOW_CODE
from tests.support.hanging_door import Door, Pass, Passed, door
from tests.support.receipt_keys import short_key
from tests.support.waiting import BOUND_S, eventually

TIME = datetime(2026, 1, 2, tzinfo=UTC)
PARTITIONS = 3


class Doors:
    """A registry of doors; commands that wait do so until `opened`."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)

        def decide(command: Pass, state: Door) -> Sequence[Event]:
            if command.waits:
                self.waiting.release()
                assert self.opened.wait(BOUND_S)
            return [Passed(door_id=command.door_id)]

        self.registry = CommandRegistry([("here", replace(door, decide=decide))])


class Member:
    """A member of a group: it has the partitions that the test gives it, from its next poll on, as in Kafka."""

    def __init__(self, on_revoked: RevokedCallback) -> None:
        self.given: frozenset[int] = frozenset()
        self.assigned: frozenset[int] = frozenset()
        self._on_revoked = on_revoked
        self._pause = threading.Event()

    def poll(self, timeout_s: float) -> frozenset[int]:
        given = self.given
        if self.assigned - given:
            self._on_revoked(self.assigned - given)
        self.assigned = given
        self._pause.wait(0.002)
        return self.assigned

    def show(self, positions: Mapping[int, int]) -> None: ...

    def close(self) -> None:
        pass


class Group(MemoryLog):
    """A log that counts how often each partition is taken over."""

    def __init__(self) -> None:
        super().__init__(PARTITIONS)
        self.members: list[Member] = []
        self.taken = Counter[int]()

    def join(self, on_revoked: RevokedCallback, role: Role = HANDLER) -> Member:  # type: ignore[override]
        self.members.append(Member(on_revoked))
        return self.members[-1]

    def own(self, partition: int, role: Role = HANDLER) -> MemoryWriter:
        self.taken[partition] += 1
        return super().own(partition, role)

    def send_to(self, partition: int, waits: bool = False) -> str:
        """Send a command for a door of this partition; returns its id."""
        number = sum(self.end(COMMANDS, number) for number in range(PARTITIONS))
        doors = (f"{number}-{each}" for each in range(100))
        door = next(each for each in doors if partition_of(f"door/{each}", PARTITIONS) == partition)
        body = {"door_id": door, "waits": waits}
        command = Envelope(f"c{number}", "door.pass", f"door/{door}", TIME, body, origin=CLIENT)
        self.submit(Entry(COMMANDS, command.stream, encode(command), 1), partition)
        return command.id

    def answered(self) -> dict[str, str]:
        found = [number for p in range(PARTITIONS) for number in self.read(RECEIPTS, p, 0)]
        return {short_key(record.key): Receipt.from_json(record.value or b"").outcome for record in found}

    def give(self, *partitions: Sequence[int]) -> None:
        """Give each member these partitions; first, all others give theirs up."""
        wanted = [frozenset(partition) for partition in partitions]
        for member, given in zip(self.members, wanted, strict=True):
            member.given = member.given & given
        eventually(lambda: all(member.assigned == member.given for member in self.members), "they are given up")
        for member, given in zip(self.members, wanted, strict=True):
            member.given = given
        eventually(lambda: all(member.assigned == member.given for member in self.members), "they are assigned")


@pytest.fixture
def doors() -> Iterator[Doors]:
    doors = Doors()
    yield doors
    doors.opened.set()


@contextmanager
def owners(log: Group, doors: Doors, count: int) -> Iterator[None]:
    stopped, failed = threading.Event(), list[BaseException]()

    def run(owner: PartitionOwner) -> None:
        try:
            owner.run(stopped)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    def new_task(partition: int) -> CommandTask:
        return CommandTask(log, doors.registry, partition, MemoryStore())

    threads = [
        threading.Thread(target=run, args=[PartitionOwner(log, HANDLER, new_task)], daemon=True) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(log.members) == count, "all have joined")
    try:
        yield
    finally:
        doors.opened.set()
        stopped.set()
        for thread in threads:
            thread.join(BOUND_S)
        assert not any(thread.is_alive() for thread in threads)
        assert not failed


def test_a_rule_that_does_not_return_delays_no_other_partition_and_is_taken_over_once(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.commands.owning.ownership.GIVE_UP_S", 0.05)
    monkeypatch.setattr("headwater.commands.owning.ownership.FENCED_PAUSE_S", 0.0)
    log = Group()
    with owners(log, doors, 2):
        log.give(range(PARTITIONS), [])
        eventually(lambda: log.taken == dict.fromkeys(range(PARTITIONS), 1), "all are taken")
        hanging = log.send_to(0, waits=True)
        assert doors.waiting.acquire(timeout=240)
        log.give([], range(PARTITIONS))
        assert doors.waiting.acquire(timeout=240)  # the second owner decides it as well
        for _ in range(20):
            others = {log.send_to(partition) for partition in (1, 2)}
            eventually(lambda others=others: others <= log.answered().keys(), "the others are answered")  # type: ignore[misc]
        assert log.taken == dict.fromkeys(range(PARTITIONS), 2)
        assert hanging not in log.answered()
        doors.opened.set()
        eventually(lambda: hanging in log.answered(), "it is answered once it returns")
        eventually(lambda: workers_of(0) == 1, "the first worker has ended")
        assert log.taken == dict.fromkeys(range(PARTITIONS), 2)
    assert set(log.answered().values()) == {"accepted"}
    assert any('it runs "decide" for "door.pass" of "door/' in record.getMessage() for record in caplog.records)


def workers_of(partition: int) -> int:
    """How many threads work on a partition."""
    return sum(span.name == f"handler-{partition}" for span in threading.enumerate())


def test_a_partition_that_comes_back_waits_for_its_earlier_worker(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.owning.ownership.GIVE_UP_S", 0.05)
    log = Group()
    with owners(log, doors, 1):
        log.give(range(PARTITIONS))
        eventually(lambda: log.taken == dict.fromkeys(range(PARTITIONS), 1), "all are taken")
        hanging = log.send_to(0, waits=True)
        assert doors.waiting.acquire(timeout=240)
        log.give([1, 2])
        log.give(range(PARTITIONS))
        other = log.send_to(1)
        eventually(lambda: other in log.answered(), "another partition is answered")
        assert log.taken == {0: 1, 1: 1, 2: 1}  # two workers would share one local state
        doors.opened.set()
        eventually(lambda: log.taken[0] == 2, "the partition is taken over once the worker has ended")
    assert log.answered()[hanging] == "accepted"


@pytest.mark.parametrize("stays", [True, False], ids=["still assigned", "assigned to another"])
def test_a_fenced_worker_ends_and_its_partition_is_taken_over_only_by_whom_it_is_assigned_to(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    monkeypatch.setattr("headwater.commands.owning.ownership.FENCED_PAUSE_S", 0.0 if stays else 3_600.0)
    log = Group()
    with owners(log, doors, 1):
        log.give(range(PARTITIONS))
        eventually(lambda: log.taken == dict.fromkeys(range(PARTITIONS), 1), "all are taken")
        first = log.send_to(0)
        eventually(lambda: first in log.answered(), "it serves")
        log.own(0)
        sent = log.send_to(0)
        if stays:
            eventually(lambda: sent in log.answered(), "the partition is taken over again")
            assert log.taken[0] == 3
            return
        eventually(lambda: workers_of(0) == 0, "the fenced worker has ended")
        others = {log.send_to(partition) for partition in (1, 2)}
        eventually(lambda: others <= log.answered().keys(), "the others are served")
        assert log.taken[0] == 2
        log.give([1, 2])
        log.give(range(PARTITIONS))
        eventually(lambda: sent in log.answered(), "it is served once it is assigned again")
        assert log.taken[0] == 3


def test_what_does_not_return_is_named_in_the_log_and_in_health_until_it_returns(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("headwater.commands.owning.running_code.SLOW_S", 0.05)
    log = Group()
    reported: Callable[[], list[str]] = lambda: slow_code(log, now_ms())  # noqa: E731
    with owners(log, doors, 1):
        log.give(range(PARTITIONS))
        assert reported() == []
        hanging = log.send_to(0, waits=True)
        (line,) = eventually(reported, "it is reported")
        assert line.startswith('partition 0 of the handler waits: "decide" for "door.pass" of "door/')
        assert f'(id "{hanging}") runs since 20' in line
        assert slow_code(log, now_ms() + 60_000) == []  # its process may have died
        doors.opened.set()
        eventually(lambda: not reported(), "the report is taken back")
    said = [record.getMessage() for record in caplog.records if "door.pass" in record.getMessage()]
    assert [any(word in each for each in said) for word in ("has been running for", "no longer runs")] == [True, True]
    reports = [record.value for record in log.read(SLOW_CODE, 0, 0)]
    assert [value is None for value in (reports[0], reports[-1])] == [False, True], "its end is reported"


def test_code_that_still_runs_is_reported_once_and_another_call_of_it_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.commands.owning.running_code.SLOW_S", 0.0)
    log, threads = MemoryLog(1), {0: threading.get_ident()}
    slow = SlowCode(log, HANDLER)
    for calls in (1, 2):
        with running("decide", "door.pass", "door/d", "c-1"):
            for _ in range(3):
                slow.report(threads)
            assert sum("has been running" in record.getMessage() for record in caplog.records) == calls
    slow.report(threads)
    values = [record.value is not None for record in log.read(SLOW_CODE, 0, 0)]
    assert values == [True, False, True, False]
    assert not slow._reports
