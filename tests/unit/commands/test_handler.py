"""What a batch of commands comes to, without a log."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ConfigDict

from headwater import upcast
from headwater.commands.codec import read_snapshot, snapshot_time_us
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import LocalStateError, Rejected
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import Receipt, receipt_key, reuse_key
from headwater.eventlog.envelope import CLIENT, Envelope, decode, encode, timestamp_ms, timestamp_us
from headwater.eventlog.ports import Record
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, SNAPSHOTS
from tests.support.receipt_keys import short_key

TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
NOW_MS = 1_800_000_000_000


class Counted(Event, type="counter.counted", version=2, history=[upcast(1)]):
    counter_id: str
    total: int


class Unheard(Event, type="counter.unheard"):
    counter_id: str


class Total(BaseModel):
    model_config = ConfigDict(frozen=True)
    total: int = 0


class Count(Command, type="counter.count"):
    counter_id: str
    by: int
    events: int = 1
    trouble: str = ""


def decide(command: Count, state: Total) -> Sequence[Event]:
    match command.trouble:
        case "crash":
            raise ZeroDivisionError("a mistake in a rule")
        case "other id":
            return [Counted(counter_id="somebody else", total=1)]
        case "other event":
            return [Unheard(counter_id=command.counter_id)]
    if command.by < 0:
        raise Rejected("negative", "count upwards")
    return [
        Counted(counter_id=command.counter_id, total=state.total + command.by * (n + 1)) for n in range(command.events)
    ]


def evolve(state: Total, event: Counted) -> Total:
    return Total(total=event.total)


counter = Aggregate(name="counter", id_field="counter_id", initial=Total(), decide=decide, evolve=evolve)
REGISTRY = CommandRegistry([("here", counter)])


class Partition:
    """A handler over a store, as a worker uses it: one partition that starts empty."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.handler = Handler(REGISTRY, 0, 1, self.store)
        self.offset = 0
        self.next_event = 0

    def record(self, value: bytes | None, key: str = "counter/c") -> Record:
        self.offset += 1
        return Record("commands", 0, self.offset - 1, key, value, 1_000)

    def command(self, command_id: str, by: int = 1, **more: Any) -> Record:
        envelope = {
            name: more.pop(name) for name in ("expected_version", "correlation_id", "traceparent") if name in more
        }
        data = {"counter_id": "c", "by": by, **more}
        return self.record(encode(Envelope(command_id, "counter.count", "counter/c", TIME, data, **envelope)))

    def run(self, *records: Record) -> tuple[Batch, dict[str, Receipt]]:
        batch = self.handler.decide(records, NOW_MS)
        offsets = range(self.next_event, self.next_event + len(batch.entries))
        receipts = batch.receipts(offsets)
        self.store.apply(batch.snapshots, receipts, {})
        self.next_event += len(batch.events)
        return batch, {short_key(key): Receipt.from_json(value or b"") for key, value in receipts.items()}

    def restart(self) -> None:
        self.handler = Handler(REGISTRY, 0, 1, self.store)


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_a_command_becomes_events_a_snapshot_and_a_receipt(partition: Partition) -> None:
    partition.run(partition.command("a"))
    batch, receipts = partition.run(partition.command("b", 2, events=2, traceparent="00-x"))
    assert [entry.topic for entry in batch.entries] == [EVENTS, EVENTS, SNAPSHOTS]
    assert [entry.key for entry in batch.entries] == ["counter/c/2", "counter/c/3", "counter/c"]
    first = decode(batch.entries[0].value)
    assert (first.id, first.type, first.stream, first.sequence) == ("counter/c/2", "counter.counted", "counter/c", 2)
    assert (first.data, first.data_version, first.time) == ({"counter_id": "c", "total": 3}, 2, TIME)
    assert (first.causation_id, first.correlation_id, first.traceparent) == ("b", "b", "00-x")
    assert batch.entries[0].timestamp_ms == 1_767_323_045_678
    snapshot = orjson.loads(batch.entries[2].value or b"")
    assert (snapshot["version"], snapshot["state"]) == (3, {"total": 5})
    receipt = receipts["b"]
    assert (receipt.outcome, receipt.version, receipt.stream) == ("accepted", 3, "counter/c")
    assert [(e.id, str(e.position)) for e in receipt.events] == [("counter/c/2", "0:1"), ("counter/c/3", "0:2")]
    assert batch.next_command == 2


def times(batch: Batch) -> list[tuple[int, int]]:
    """Seconds after TIME, in the events and in their records, from which views read it."""
    start = timestamp_ms(TIME)
    both = [(timestamp_ms(decode(event.value).time), event.timestamp_ms) for event in batch.events]
    return [((one - start) // 1000, (other - start) // 1000) for one, other in both]


@pytest.mark.parametrize("restarts", [False, True], ids=["in memory", "from its snapshot"])
def test_no_event_is_earlier_than_the_one_before_it_in_its_stream(partition: Partition, restarts: bool) -> None:
    def at(name: str, seconds: int) -> Record:
        time, data = TIME + timedelta(seconds=seconds), {"counter_id": "c", "by": 1}
        return partition.record(encode(Envelope(name, "counter.count", "counter/c", time, data)))

    batch, _ = partition.run(at("a", 20), at("waited in an outbox", 5))
    assert times(batch) == [(20, 20), (20, 20)]
    if restarts:
        partition.restart()
    batch, receipts = partition.run(at("of a clock that is behind", 10), at("later", 30))
    assert times(batch) == [(20, 20), (30, 30)]
    assert receipts["of a clock that is behind"].outcome == "accepted"


def test_a_snapshot_has_the_time_of_the_last_event(partition: Partition) -> None:
    batch, _ = partition.run(partition.command("a"))
    snapshot = batch.snapshots["counter/c"] or b""
    assert snapshot_time_us(snapshot) == timestamp_us(TIME)
    assert read_snapshot(counter, snapshot) == (Total(total=1), 1)


def test_commands_of_one_batch_see_each_other_and_share_a_snapshot(partition: Partition) -> None:
    batch, receipts = partition.run(partition.command("a", 1), partition.command("b", 2), partition.command("c", 3))
    assert [receipts[key].version for key in "abc"] == [1, 2, 3]
    assert [decode(entry.value).data["total"] for entry in batch.events] == [1, 3, 6]
    recorded = [event for key in "abc" for event in receipts[key].events]
    assert [(e.id, str(e.position)) for e in recorded] == [(f"counter/c/{n}", f"0:{n - 1}") for n in (1, 2, 3)]
    assert len(batch.snapshots) == 1


def test_no_events_is_accepted_and_writes_no_snapshot(partition: Partition) -> None:
    batch, receipts = partition.run(partition.command("a", events=0))
    assert batch.entries == []
    assert (receipts["a"].outcome, receipts["a"].version, receipts["a"].events) == ("accepted", 0, ())


def test_a_rule_that_says_no_is_answered_with_its_code(partition: Partition) -> None:
    partition.run(partition.command("a"))
    batch, receipts = partition.run(partition.command("b", -1))
    assert batch.entries == []
    error = receipts["b"].error
    assert (receipts["b"].outcome, receipts["b"].version) == ("rejected", 1)
    assert error is not None
    assert (error.code, error.message) == ("negative", "count upwards")


@pytest.mark.parametrize(
    ("expected", "outcome"), [(0, "conflict"), (1, "conflict"), (2, "accepted"), (3, "conflict"), (None, "accepted")]
)
def test_the_expected_version_is_demanded(partition: Partition, expected: int | None, outcome: str) -> None:
    partition.run(partition.command("a"), partition.command("b"))
    batch, receipts = partition.run(partition.command("c", expected_version=expected))
    assert receipts["c"].outcome == outcome
    if outcome == "conflict":
        error = receipts["c"].error
        assert error is not None
        assert (error.code, error.expected, error.actual) == ("wrong_version", expected, 2)
        assert batch.entries == []


def test_zero_expects_that_the_stream_does_not_exist(partition: Partition) -> None:
    _, receipts = partition.run(partition.command("a", expected_version=0), partition.command("b", expected_version=0))
    assert [receipts[key].outcome for key in "ab"] == ["accepted", "conflict"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_retry_adds_nothing_and_is_given_the_first_receipt(partition: Partition, restarted: bool) -> None:
    _, first = partition.run(partition.command("a", expected_version=0))
    partition.run(partition.command("b"))
    if restarted:
        partition.restart()
    batch, again = partition.run(partition.command("a", expected_version=0))
    assert batch.entries == []
    assert again == {"a": first["a"]}
    assert batch.next_command == 3


def test_a_retry_within_the_batch_adds_nothing(partition: Partition) -> None:
    batch, receipts = partition.run(partition.command("a"), partition.command("a"), partition.command("a"))
    assert len(batch.events) == 1
    assert list(receipts) == ["a"]


@pytest.mark.parametrize("same_batch", [False, True])
def test_a_command_id_for_another_command_is_refused_under_a_key_of_its_own(
    partition: Partition, same_batch: bool
) -> None:
    first, other = partition.command("a", 1), partition.command("a", 2)
    if same_batch:
        batch, receipts = partition.run(first, other)
    else:
        partition.run(first)
        batch, receipts = partition.run(other)
    refused = next(receipt for key, receipt in receipts.items() if key != "a")
    assert refused.error is not None
    assert (refused.command_id, refused.outcome, refused.error.code) == ("a", "failed", "idempotency_key_reused")
    assert reuse_key("a", refused.fingerprint) in receipts
    assert len(batch.events) == (1 if same_batch else 0)
    kept = Receipt.from_json(partition.store.receipts([receipt_key("counter/c", CLIENT, "a")])[0] or b"")
    assert kept.outcome == "accepted"


@pytest.mark.parametrize("trouble", ["crash", "other id", "other event"])
def test_a_mistake_in_a_rule_fails_the_command_and_the_next_one_goes_on(
    partition: Partition, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    batch, receipts = partition.run(
        partition.command("a"), partition.command("b", trouble=trouble), partition.command("c")
    )
    assert [receipts[key].outcome for key in "abc"] == ["accepted", "failed", "accepted"]
    error = receipts["b"].error
    assert error is not None
    assert error.code == "internal_error"
    error_id = error.message.split()[-1]
    assert any(error_id in line.getMessage() and line.exc_info for line in caplog.records)
    assert [entry.key for entry in batch.events] == ["counter/c/1", "counter/c/2"]


def unreadable(value: dict[str, Any]) -> bytes:
    document = {"specversion": "1.0", "id": "x", "source": "/t", "type": "counter.count", "subject": "counter/c"}
    return orjson.dumps({**document, "time": "2026-01-02T03:04:05Z", "data": {"counter_id": "c", "by": 1}, **value})


@pytest.mark.parametrize(
    ("value", "reason", "answered"),
    [
        (b"\xff\x00 no JSON", "malformed JSON", False),
        (b"[]", 'expected "object", got "array"', False),
        (None, "tombstone", False),
        (unreadable({"specversion": "0.3"}), "specversion", False),
        (unreadable({"time": "soon"}), "time", False),
        (unreadable({"type": "counter.unknown"}), "counter.unknown", True),
        (unreadable({"data": {"counter_id": "c", "by": "1"}}), "by", True),
        (unreadable({"data": {"counter_id": "c", "by": 1, "more": 1}}), "more", True),
        (unreadable({"data": {"counter_id": "c\x00", "by": 1}}), "invalid body", True),
        (unreadable({"subject": "counter/d"}), "subject", False),
        (unreadable({"time": "1969-12-31T23:59:59Z"}), "1970", True),
    ],
)
def test_an_unreadable_command_is_a_dead_letter(
    partition: Partition, value: bytes | None, reason: str, answered: bool
) -> None:
    batch, receipts = partition.run(partition.record(value, "k\udcff"), partition.command("a"))
    (letter,) = batch.dead_letters
    assert (letter.topic, letter.key) == (DEAD_LETTERS, "commands/0/0")
    document = orjson.loads(letter.value or b"")
    assert reason in document["reason"]
    assert (document["topic"], document["partition"], document["offset"]) == ("commands", 0, 0)
    assert base64.b64decode(document["key"]) == b"k\xff"
    assert document["value"] is None if value is None else base64.b64decode(document["value"]) == value
    assert receipts["a"].outcome == "accepted"
    assert ("x" in receipts) == answered
    if answered:
        assert receipts["x"].outcome == "failed"


def test_a_command_in_the_wrong_partition_is_a_dead_letter() -> None:
    record = Partition().command("a")
    outcomes = [Handler(REGISTRY, p, 2, MemoryStore()).decide([record], 0) for p in (0, 1)]
    assert sorted(len(batch.dead_letters) for batch in outcomes) == [0, 1]
    assert sorted(len(batch.events) for batch in outcomes) == [0, 1]


def test_the_states_that_were_used_last_stay_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.commands.handling.handler.CACHED_STREAMS", 2)
    read: list[str] = []

    class Noting(MemoryStore):
        def snapshot(self, stream: str) -> bytes | None:
            read.append(stream)
            return super().snapshot(stream)

    partition = Partition()
    partition.store = Noting()
    partition.restart()
    for number, name in enumerate("ababacabc"):
        body = {"counter_id": name, "by": 1}
        partition.run(partition.record(encode(Envelope(f"{number}", "counter.count", f"counter/{name}", TIME, body))))
    assert "".join(stream[-1] for stream in read) == "abcbc"


def test_a_store_that_cannot_be_read_answers_nothing(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(stream: str) -> bytes | None:
        raise LocalStateError(Path("here"), "Corruption")

    monkeypatch.setattr(partition.store, "snapshot", unreadable)
    with pytest.raises(LocalStateError):
        partition.run(partition.command("a"))
