"""Following receipts: where it starts, what it finds, and what errors of the log and the disk leave of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import EarlierReceiptsUnread, LocalStateError
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import Receipt, receipt_key
from headwater.commands.sending import receipt_follower
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.receipt_follower import Place, ReceiptFollower, ReceiptIndex, RecentReceipts
from headwater.commands.sending.stored_receipts import StoredReceipts, open_stored
from headwater.eventlog.envelope import CLIENT
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog, MemoryTail
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import RECEIPTS
from tests.support.waiting import eventually


def record(command_id: str, offset: int, partition: int = 0) -> Record:
    return Record(RECEIPTS, partition, offset, key_of(command_id), b"", 0)


def key_of(command_id: str) -> str:
    return receipt_key("t/1", CLIENT, command_id)


def find(where: ReceiptIndex | ReceiptFollower, command_id: str) -> Place | None:
    """The place of the receipt."""
    return where.find_each([key_of(command_id)])[0]


def receipt(command_id: str) -> Receipt:
    return Receipt(command_id, "t.x", "t/1", "accepted", 1, "f", "2026-01-02T03:04:05.678901Z")


class NotingLog(MemoryLog):
    """Two partitions of receipts; it notes where tails start, and may fail, or hold back what is older."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(partitions=2)
        self.starts: list[Mapping[int, int]] = []
        self.failures = 0
        self.left = 0
        self.older = threading.Event()
        self.older.set()
        self.give(*(f"c{each}" for each in range(number)))

    def give(self, *ids: str, partition: int = 0) -> None:
        for id_ in ids:
            self.submit(Entry(RECEIPTS, key_of(id_), receipt(id_).to_json(), 1), partition)

    def tail(self, topic: str, starts: Mapping[int, int], *, rereads: bool = True) -> MemoryTail:
        self.starts.append(dict(starts))
        return NotingTail(self, topic, starts)

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        try:
            yield from super().read(topic, partition, start, end)
        except GeneratorExit:
            self.left += 1
            raise


class NotingTail(MemoryTail):
    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        log: NotingLog = self._log  # type: ignore[assignment]
        if len(self._positions) == 1 and not log.older.is_set():
            return []
        if log.failures:
            log.failures -= 1
            raise LogUnavailable("following", "no broker")
        return super().poll(limit, 0.0 if len(self._positions) == 1 else 0.001)


@contextmanager
def following(
    log: MemoryLog,
    open_index: Callable[[], ReceiptIndex],
    awaited: Sequence[str] = (),
    deliver: Callable[[Sequence[Record]], None] = lambda _: None,
) -> Iterator[ReceiptFollower]:
    follower = ReceiptFollower(log, open_index, awaited, deliver, remembered=1_000)
    follower.start()
    try:
        yield follower
    finally:
        follower.close()


def until_ready(follower: ReceiptFollower) -> None:
    assert follower.wait_ready(240)


@pytest.fixture(params=["memory", "stored", "disk"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReceiptIndex]:
    made: ReceiptIndex = RecentReceipts(1_000)
    if request.param == "stored":
        made = StoredReceipts(MemoryStore())
    elif request.param == "disk":
        made = open_stored(MemoryLog(), tmp_path, 7)
    yield made
    made.close()


def test_an_index_finds_the_latest_place_of_each(index: ReceiptIndex) -> None:
    index.add([record("a", 2**40, 3), record("b", 5), record("a", 2**40 + 1, 3)], {})
    assert (find(index, "a"), find(index, "b"), find(index, "c")) == ((3, 2**40 + 1), (0, 5), None)
    assert index.find_each([key_of(each) for each in "cba"]) == [None, (0, 5), (3, 2**40 + 1)]
    index.clear()
    assert (find(index, "a"), find(index, "b"), index.position(3)) == (None, None, 0)


@pytest.mark.parametrize("index", ["stored", "disk"], indirect=True)
def test_an_older_receipt_takes_no_place_of_a_newer_one(index: ReceiptIndex) -> None:
    index.add([record("a", 9)], {1: 7})
    index.add_older([record("a", 3), record("b", 4), record("b", 5)], {0: 6})
    index.add_older([record("b", 7)], {})
    assert (find(index, "a"), find(index, "b")) == ((0, 9), (0, 7))
    assert (index.position(0), index.position(1)) == (6, 7)


def test_the_index_in_memory_forgets_the_oldest() -> None:
    index = RecentReceipts(limit=10)
    index.add([record(str(number), number) for number in range(100)], {})
    assert [find(index, str(number)) for number in range(95, 100)] == [(0, n) for n in range(95, 100)]
    assert [find(index, str(number)) for number in range(90)] == [None] * 90


def test_two_processes_of_one_machine_have_an_index_each(tmp_path: Path) -> None:
    first, second = (open_stored(MemoryLog(), tmp_path, 7) for _ in range(2))
    first.add([record("a", 1)], {})
    assert find(second, "a") is None
    first.close()
    second.close()


def test_it_starts_near_the_end_and_is_ready_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    log = NotingLog(100)
    with following(log, lambda: RecentReceipts(1_000)) as follower:
        until_ready(follower)
        assert log.starts == [{0: 90, 1: 0}]
        assert (find(follower, "c95"), find(follower, "c89")) == ((0, 95), None)
        assert follower.knows_enough
        log.give("later", partition=1)
        eventually(lambda: find(follower, "later") == (1, 0), "what comes later is found")


def test_older_receipts_are_read_later_and_never_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    monkeypatch.setattr(receipt_follower, "OLDER_RECORDS", 7)
    log = NotingLog(100)
    log.older.clear()

    def open_index() -> ReceiptIndex:
        return open_stored(log, tmp_path, 7)

    with following(log, open_index) as follower:
        until_ready(follower)
        assert (find(follower, "c95"), find(follower, "c5"), follower.knows_enough) == ((0, 95), None, False)
        log.give("meanwhile")
        eventually(lambda: find(follower, "meanwhile"), "what comes meanwhile is found")
        log.older.set()
        eventually(lambda: follower.knows_enough, "all is known")
        assert [find(follower, f"c{number}") for number in range(100)] == [(0, number) for number in range(100)]
        assert log.starts == [{0: 90, 1: 0}, {0: 0}]
        log.give("last")
        eventually(lambda: find(follower, "last"), "what comes later is found")
    log.starts.clear()
    log.give("while away")
    with following(log, open_index) as follower:
        until_ready(follower)
        assert follower.knows_enough
        assert log.starts == [{0: 102, 1: 0}]
        assert [find(follower, name) for name in ("c5", "last", "while away")] == [(0, 5), (0, 101), (0, 102)]


def test_older_receipts_that_were_not_all_read_are_read_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    log = NotingLog(100)
    log.older.clear()
    with following(log, lambda: open_stored(log, tmp_path, 7)) as follower:
        until_ready(follower)
        log.give("meanwhile")
        eventually(lambda: find(follower, "meanwhile"), "what comes meanwhile is found")
    log.older.set()
    with following(log, lambda: open_stored(log, tmp_path, 7)) as follower:
        eventually(lambda: follower.knows_enough, "all is known")
        assert [find(follower, f"c{number}") for number in range(100)] == [(0, number) for number in range(100)]


def test_it_starts_where_retention_has_left_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    store = MemoryStore()
    StoredReceipts(store).add([record("c3", 3)], {0: 4})
    log = NotingLog(100)
    log.delete(RECEIPTS, 0, 100)  # as Kafka does after a quiet time: even the active segment
    with following(log, lambda: StoredReceipts(store)) as follower:
        until_ready(follower)
        eventually(lambda: follower.knows_enough, "all that is left is known")
        log.give("later")
        eventually(lambda: find(follower, "later") == (0, 100), "what comes later is found")
    assert log.starts == [{0: 100, 1: 0}]


def test_older_receipts_are_read_from_where_retention_has_left_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    store = MemoryStore()
    StoredReceipts(store).add([record("c3", 3)], {0: 4})
    log = NotingLog(100)
    log.delete(RECEIPTS, 0, 50)
    with following(log, lambda: StoredReceipts(store)) as follower:
        eventually(lambda: follower.knows_enough, "all that is left is known")
        left = range(50, 100)
        assert [find(follower, f"c{number}") for number in left] == [(0, number) for number in left]
    assert log.starts == [{0: 90, 1: 0}, {0: 50}]


def test_what_retention_deletes_while_older_receipts_are_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    monkeypatch.setattr(receipt_follower, "RETRY_S", 0.0)
    store = MemoryStore()
    StoredReceipts(store).add([record("c3", 3)], {0: 4})
    log = NotingLog(100)
    log.older.clear()
    with following(log, lambda: StoredReceipts(store)) as follower:
        eventually(lambda: {0: 4} in log.starts, "it reads older receipts")
        log.delete(RECEIPTS, 0, 50)
        log.older.set()
        eventually(lambda: follower.knows_enough, "all that is left is known")
        assert [find(follower, f"c{number}") for number in (50, 99)] == [(0, 50), (0, 99)]


def test_after_a_long_time_without_the_log_it_goes_on_where_retention_has_left_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipt_follower, "RETRY_S", 0.001)
    log = NotingLog(5)
    with following(log, lambda: RecentReceipts(1_000)) as follower:
        until_ready(follower)
        log.failures = 1_000_000
        eventually(lambda: not follower.ready, "it is not ready")
        log.give("deleted", "kept")
        log.delete(RECEIPTS, 0, 6)
        log.failures = 0
        eventually(lambda: find(follower, "kept") == (0, 6), "what is left is found")
        until_ready(follower)


def test_a_log_that_has_lost_its_end_is_read_again() -> None:
    store = MemoryStore()
    StoredReceipts(store).add([record("ghost", 900)], {0: 901})
    log = NotingLog(10)
    with following(log, lambda: StoredReceipts(store)) as follower:
        until_ready(follower)
        assert (find(follower, "ghost"), find(follower, "c3")) == (None, (0, 3))


def test_after_an_error_of_the_log_it_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "RETRY_S", 0.0)
    log = NotingLog(50)
    with following(log, lambda: RecentReceipts(1_000)) as follower:
        until_ready(follower)
        log.failures = 3
        eventually(lambda: len(log.starts) == 4 and follower.ready, "it follows again")
        assert log.starts[1:] == [{0: 50, 1: 0}] * 3
        log.give("later")
        eventually(lambda: find(follower, "later") == (0, 50), "what comes later is found")
        assert find(follower, "c3") == (0, 3)


def test_while_the_log_is_away_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "RETRY_S", 0.001)
    log = NotingLog(5)
    with following(log, lambda: RecentReceipts(1_000)) as follower:
        until_ready(follower)
        log.failures = 1_000_000
        eventually(lambda: not follower.ready, "it is not ready")
        assert not follower.knows_enough
        log.failures = 0
        until_ready(follower)


class FullDisk(MemoryStore):
    def check(self) -> None:
        raise LocalStateError(Path("/x"), "no room")


def test_a_disk_that_is_full_delays_no_receipt_and_what_is_not_known_is_not_denied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = NotingLog(5)
    woken: list[Record] = []
    with following(log, lambda: StoredReceipts(FullDisk()), [key_of("mine")], woken.extend) as follower:
        until_ready(follower)
        log.give("mine")
        eventually(lambda: woken, "the receipt is delivered")
        assert find(follower, "mine") == (0, 5)
        assert not follower.knows_enough
    assert caplog.text.count("HEADWATER_STATE") == 1


def test_an_index_that_cannot_be_opened_delays_no_receipt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    log = NotingLog(5)
    with following(log, lambda: open_stored(log, tmp_path / "file", 7)) as follower:
        until_ready(follower)
        assert (find(follower, "c3"), follower.knows_enough) == ((0, 3), False)
    assert "HEADWATER_STATE" in caplog.text


class Unreadable(MemoryStore):
    """It cannot be read, or not be emptied; `closed` counts how often it was closed."""

    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.ahead, self.closed = ahead, 0

    def position(self, name: str) -> int:
        if self.ahead:
            return 900
        raise LocalStateError(Path("/x"), "Corruption")

    def clear(self) -> None:
        raise LocalStateError(Path("/x"), "read-only")

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("ahead", [False, True])
def test_an_index_that_cannot_be_read_or_emptied_is_closed_and_delays_no_receipt(ahead: bool) -> None:
    log, store = NotingLog(5), Unreadable(ahead)
    with following(log, lambda: StoredReceipts(store)) as follower:
        until_ready(follower)
        assert (find(follower, "c3"), follower.knows_enough) == ((0, 3), False)
    assert store.closed == 1, "a damaged one is deleted then"


class ReadOnlyDisk(FullDisk):
    def close(self) -> None:
        raise LocalStateError(Path("/x"), "read-only")


def test_an_index_that_cannot_be_closed_delays_no_receipt() -> None:
    log, released = NotingLog(5), list[str]()
    woken: list[Record] = []

    def open_index() -> ReceiptIndex:
        return StoredReceipts(ReadOnlyDisk(), lambda: released.append("slot"))

    with following(log, open_index, [key_of("mine")], woken.extend) as follower:
        until_ready(follower)
        log.give("mine")
        eventually(lambda: woken, "the receipt is delivered")
        assert follower.ready
    assert released == ["slot"]


def test_after_any_other_error_it_is_not_ready_and_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receipt_follower, "RETRY_S", 0.001)
    log, works = NotingLog(5), threading.Event()
    woken: list[Record] = []

    def deliver(records: Sequence[Record]) -> None:
        if not works.is_set():
            raise RuntimeError("a bug")
        woken.extend(records)

    with following(log, lambda: RecentReceipts(10), [key_of("mine")], deliver) as follower:
        until_ready(follower)
        log.give("mine")
        eventually(lambda: not follower.ready, "it is not ready")
        works.set()
        eventually(lambda: woken, "the receipt is delivered")
        until_ready(follower)
    assert "Traceback" in caplog.text
    assert "RuntimeError: a bug" in caplog.text


def test_a_receipt_can_be_found_before_whoever_waits_for_it_wakes() -> None:
    log = NotingLog()
    found: list[object] = []
    with following(
        log,
        lambda: RecentReceipts(10),
        [key_of("k")],
        lambda records: found.append(follower.find_each([records[0].key])[0]),
    ) as follower:
        until_ready(follower)
        log.give("other", "k")
        eventually(lambda: found, "it is delivered")
        assert found == [(0, 1)]
        eventually(lambda: find(follower, "other") == (0, 0), "the others can be found")


def test_whoever_is_waited_for_no_receipt_is_read_twice() -> None:
    log, store = NotingLog(), MemoryStore()
    with following(log, lambda: StoredReceipts(store), [key_of("mine")]) as follower:
        until_ready(follower)
        for names, end in ((["mine"], 1), (["other"], 2), (["mine", "other"], 4)):
            log.give(*names)
            eventually(lambda end=end: StoredReceipts(store).position(0) == end, "it is stored")  # type: ignore[misc]
            assert [find(follower, each) for each in ("mine", "other")].count(None) == (names == ["mine"])


def test_a_gateway_denies_no_receipt_that_it_may_find_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_follower, "START_OFFSETS", 20)
    log = NotingLog(100)
    log.older.clear()

    async def play() -> None:
        gateway = CommandGateway(log, CommandRegistry([]), open_index=lambda: StoredReceipts(MemoryStore()))
        with pytest.raises(EarlierReceiptsUnread):
            await gateway.receipt("c95", "t/1")
        await gateway.start()
        assert await asyncio.to_thread(gateway.wait_ready, 240)
        assert await gateway.receipt("c95", "t/1") == receipt("c95")
        for name in ("c5", "unknown"):
            with pytest.raises(EarlierReceiptsUnread, match=name):
                await gateway.receipt(name, "t/1")
        log.older.set()
        await asyncio.to_thread(eventually, lambda: gateway._follower.knows_enough, "all is known")
        assert await gateway.receipt("c5", "t/1") == receipt("c5")
        assert await gateway.receipt("unknown", "t/1") is None
        await gateway.close()

    asyncio.run(play())
    assert log.left == 0  # a reader that is left in the middle is closed
