"""Whatever a user's rules do, the command is answered, what is appended can be read, and the next command goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from msgspec import structs

from headwater.commands.codec import fingerprint_of, fold, read_command, read_snapshot
from headwater.commands.declaring.aggregate import Aggregate
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DecideFailed, DeclarationError
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.command_task import CommandTask
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import Receipt, raise_refusal, receipt_key
from headwater.eventlog.envelope import CLIENT, HEARTBEAT, Envelope, decode, encode, encode_event, format_time
from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record, abort_on_error
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, RECEIPTS, SNAPSHOTS
from tests.support.badly_behaved import BAD, CODES, MIB, Wild, wild
from tests.support.receipt_keys import short_key
from tests.support.seeds import seed_of

REGISTRY = CommandRegistry([("here", wild)])
TIME = datetime(2026, 1, 2, tzinfo=UTC)


def command(what: str, number: int = 0, name: str = "w", **more: Any) -> bytes:
    body = {"wild_id": name, "what": what}
    return encode(Envelope(f"c{number}", "wild.do", f"wild/{name}", TIME, body, **more))


class Deployment:
    """One partition in memory whose task is made anew for each run, as after a restart."""

    def __init__(self) -> None:
        self.log = MemoryLog(partitions=1)

    def submit(self, *values: bytes) -> None:
        for value in values:
            self.log.submit(Entry(COMMANDS, "k", value, 1_000), 0)

    def run(self) -> int:
        """Work everything off; returns the number of transactions."""
        transactions = 0
        with closing(self.log.own(0)) as writer, closing(CommandTask(self.log, REGISTRY, 0, MemoryStore())) as task:
            task.restore(writer, lambda: False)
            left: Sequence[Record] = list(self.log.read(COMMANDS, 0, self.log.next_offset(0)))
            while left:
                left = task.work(writer, left)
                transactions += 1
        return transactions

    def receipts(self) -> dict[str, Receipt]:
        records = list(self.log.read(RECEIPTS, 0, 0))
        assert all(len(record.value or b"") < MAX_RECORD_BYTES for record in records)
        return {short_key(record.key): Receipt.from_json(record.value or b"") for record in records}

    def events(self) -> list[Envelope]:
        envelopes = [decode(record.value) for record in self.log.read(EVENTS, 0, 0)]
        return [envelope for envelope in envelopes if envelope.type != HEARTBEAT]

    def check(self) -> None:
        """Every event and snapshot can be read, and what they say is the same."""
        streams: dict[str, list[Envelope]] = {}
        for envelope in self.events():
            streams.setdefault(envelope.stream, []).append(envelope)
        for record in self.log.read(SNAPSHOTS, 0, 0):
            if record.key in streams:
                latest = read_snapshot(wild, record.value or b"")
        for envelopes in streams.values():
            assert fold(wild, envelopes) == latest
            assert isinstance(latest[0], Wild)


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("what", "together"),
    [
        *((what, True) for what in BAD),
        # one of each kind, with a restart before and behind it: the receipts of all are read in the same way
        *((what, False) for what in ("code is huge", "exit", "validator exits", "large event", "state of 6 MiB")),
    ],
)
def test_what_cannot_be_recorded_is_answered_and_the_next_command_is_decided(
    deployment: Deployment, what: str, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for number, each in enumerate(("good", what, "good")):
        deployment.submit(command(each, number))
        if not together:
            deployment.run()
    deployment.run()
    receipts = deployment.receipts()
    assert [receipts[f"c{number}"].outcome for number in range(3)] == ["accepted", "failed", "accepted"]
    error = receipts["c1"].error
    assert error is not None
    assert error.code == CODES.get(what, "internal_error")
    with pytest.raises(DecideFailed) as raised:
        raise_refusal(receipts["c1"])
    error_id = raised.value.error_id
    assert error_id is not None
    assert error.message.split()[-1] == error_id
    assert any(error_id in line.getMessage() and line.exc_info for line in caplog.records)
    assert [event.id for event in deployment.events()] == ["wild/w/1", "wild/w/2"]
    deployment.check()


def test_a_generator_is_read_once(deployment: Deployment) -> None:
    deployment.submit(command("generator"), command("good", 1))
    deployment.run()
    assert [len(receipt.events) for receipt in deployment.receipts().values()] == [3, 1]
    assert [event.sequence for event in deployment.events()] == [1, 2, 3, 4]
    deployment.check()


def test_a_state_that_grows_too_large_fails_the_command_that_it_grew_by(deployment: Deployment) -> None:
    deployment.submit(*(command("state of 2 MiB" if n % 2 else "good", n) for n in range(6)), command("good", 6, "v"))
    deployment.run()
    receipts = deployment.receipts()
    assert [receipts[f"c{n}"].outcome for n in range(7)] == [
        "accepted", "accepted", "accepted", "failed", "accepted", "failed", "accepted",
    ]  # fmt: skip
    error = receipts["c3"].error
    assert error is not None
    assert 'the state of "wild/w" would have 4194' in error.message
    assert 'keep less in the state of "wild"' in error.message


@pytest.mark.parametrize("what", ["rejected", "rejected with an enum"])
def test_a_rejection_is_told_as_text(deployment: Deployment, what: str) -> None:
    deployment.submit(command(what))
    deployment.run()
    receipt = deployment.receipts()["c0"]
    assert receipt.error is not None
    assert (receipt.outcome, receipt.error.code, receipt.error.message) == ("rejected", "no", "a rule said no")


def raw(**changes: Any) -> bytes:
    document = {"specversion": "1.0", "id": "raw", "source": "/t", "type": "wild.do", "subject": "wild/w"}
    return orjson.dumps({**document, "time": "2026-01-02T03:04:05Z", "data": {"wild_id": "w"}, **changes})


@pytest.mark.parametrize(
    ("value", "answered"),
    [
        (raw(time="9999-12-31T23:59:59-14:00"), False),
        (raw(time="0001-01-01T00:00:00+14:00"), False),
        (raw(time="0001-01-01T00:00:00Z"), True),
        (b'{"specversion":"1.0","id":"raw","data":' + b"[" * 2_000, False),
        (raw().replace(b'"wild_id":"w"', b'"wild_id":' + b"[" * 500 + b"]" * 500), True),
        (raw(id="i" * 200_000), False),
        (raw(type="t" * 50_000), True),
        (raw().replace(b'"raw"', rb'"\ud800"'), False),
        (raw(data=[]), False),
        (raw(expectedversion=2**64 - 1), True),
        (raw(expectedversion=-1), False),
    ],
)
def test_a_raw_command_is_answered_or_a_dead_letter_and_the_next_one_is_decided(
    deployment: Deployment, value: bytes, answered: bool
) -> None:
    deployment.submit(value, command("good"))
    deployment.run()
    receipts = deployment.receipts()
    assert receipts["c0"].outcome == "accepted"
    assert ("raw" in receipts) == answered
    assert len(list(deployment.log.read(DEAD_LETTERS, 0, 0))) == (b"expectedversion" not in value or not answered)


@pytest.mark.parametrize("timestamp_ms", [-1, 2**62])
def test_a_record_with_a_time_that_python_does_not_know_is_a_dead_letter(timestamp_ms: int) -> None:
    record = Record(COMMANDS, 0, 0, "k", b"no JSON", timestamp_ms)
    assert len(Handler(REGISTRY, 0, 1, MemoryStore()).decide([record], 0).dead_letters) == 1


def test_an_unreadable_command_has_the_fingerprint_that_its_sender_waits_for(deployment: Deployment) -> None:
    kind = REGISTRY.command("wild.do")
    body = {"what": "good", "wild_id": "w"}
    asked = fingerprint_of("wild.gone", read_command(kind, body).body, 7)
    deployment.submit(encode(Envelope("c", "wild.gone", "wild/w", TIME, body, expected_version=7)))
    deployment.run()
    assert deployment.receipts()["c"].fingerprint == asked


def test_a_receipt_that_something_else_wrote_fails_its_command(deployment: Deployment) -> None:
    store = MemoryStore()
    key = receipt_key("wild/w", CLIENT, "c0")
    store.apply({}, {key: b"garbage"}, {})
    batch = Handler(REGISTRY, 0, 1, store).decide([Record(COMMANDS, 0, 0, "k", command("good"), 0)], 0)
    assert [decision.outcome for decision in batch.decisions] == ["failed"]
    assert key not in batch.receipts([])


def test_a_transaction_is_bounded_by_the_events_and_the_bytes_that_it_appends(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.handling.batch.MAX_BATCH_EVENTS", 5)
    deployment.submit(*(command("generator", n) for n in range(4)))
    assert deployment.run() == 2
    deployment.submit(*(command("state of 2 MiB", n, f"w{n}") for n in range(4, 10)))
    monkeypatch.setattr("headwater.commands.handling.batch.MAX_BATCH_EVENTS", 1_000)
    deployment.run()
    # their states are known by now, and written again by each command
    deployment.submit(*(command("good", n + 10, f"w{n}") for n in range(4, 10)))
    assert deployment.run() == 2
    assert {receipt.outcome for receipt in deployment.receipts().values()} == {"accepted"}


class Noting(MemoryStore):
    """Notes whose states are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def snapshot(self, stream: str) -> bytes | None:
        self.read.append(stream[-1])
        return super().snapshot(stream)

    def run(self, handler: Handler, *commands: bytes) -> Batch:
        """One transaction."""
        records = [Record(COMMANDS, 0, number, "k", each, 0) for number, each in enumerate(commands)]
        batch = handler.decide(records, 0)
        self.apply(batch.snapshots, {}, {})
        return batch


def test_the_states_that_stay_decoded_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.commands.handling.handler.CACHED_BYTES", 5 * MIB)
    store = Noting()
    handler = Handler(REGISTRY, 0, 1, store)
    for name in "abc":
        store.run(handler, command("state of 2 MiB", 0, name))
    for name in "cbcba":
        store.run(handler, command("good", 0, name))
    assert "".join(store.read) == "abca"


def test_the_sum_of_what_stays_decoded_is_right_whatever_the_rules_do() -> None:
    chance, store = random.Random(seed_of(1)), Noting()
    handler = Handler(REGISTRY, 0, 1, store)
    for _ in range(20):
        whats = chance.choices(("good", "rejected", "evolve fails", "state of 6 MiB", "state no JSON"), k=4)
        store.run(handler, *(command(what, number, chance.choice("abc")) for number, what in enumerate(whats)))
        assert handler._streams.size_bytes == sum(state.size_bytes for state, _ in handler._streams._values.values())
    assert handler._streams.size_bytes > 0


def test_a_transaction_is_bounded_by_the_states_that_it_only_reads() -> None:
    store = Noting()
    for name in "abcdef":
        store.run(Handler(REGISTRY, 0, 1, store), command("state of 2 MiB", 0, name))
    batch = store.run(
        Handler(REGISTRY, 0, 1, store), *(command("rejected", n, each) for n, each in enumerate("abcdef"))
    )
    assert batch.taken == 4


def test_the_retries_of_large_receipts_are_bounded_as_well() -> None:
    batch = Batch(0, 0)
    batch.add_repeated("a", b"x" * 9 * 1024 * 1024)
    assert batch.is_full


def test_a_transaction_is_taken_back_whatever_is_raised() -> None:
    log = MemoryLog(partitions=1)
    with closing(log.own(0)) as writer:
        with pytest.raises(KeyboardInterrupt), abort_on_error(writer.begin()) as transaction:
            transaction.append([Entry(EVENTS, "k", b"{}", 0)])
            raise KeyboardInterrupt
        assert log.end(EVENTS, 0) == 2  # an open one would hold the end back
        assert list(log.read(EVENTS, 0, 0)) == []


def test_an_asynchronous_rule_is_refused_at_start() -> None:
    async def later(command: Any, state: Any) -> Any:
        return []

    with pytest.raises(DeclarationError, match='aggregate "wild": decide is asynchronous'):
        Aggregate(name="wild", id_field="wild_id", initial=Wild(), decide=later, evolve=wild.evolve)  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [{}, {"correlation_id": "k", "traceparent": "00-x"}])
@pytest.mark.parametrize("stream", ["wild/w", 'wild/Ä"\\\n'])
def test_events_of_a_command_are_encoded_as_any_envelope_is(stream: str, more: dict[str, Any]) -> None:
    cause = Envelope('c"1', "wild.do", stream, TIME, {}, **more)
    event = structs.replace(
        cause,
        id=f"{stream}/7",
        type="wild.done",
        source="/headwater/wild",
        data_version=2,
        sequence=7,
        recorded_time=TIME + timedelta(milliseconds=1),
    )
    event = structs.replace(event, causation_id=cause.id, correlation_id=cause.correlation_id or cause.id)
    body = b'{"a":[1]}'
    times = format_time(TIME), format_time(TIME + timedelta(milliseconds=1))
    assert encode_event(cause, *times, "/headwater/wild", "wild.done", 2, 7, body) == encode(event, body)
