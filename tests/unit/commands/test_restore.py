"""Restoring a partition from the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from headwater.commands.codec import read_snapshot
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import UnreadableSnapshot
from headwater.commands.handling.command_task import heartbeat
from headwater.commands.handling.handler import Handler
from headwater.commands.handling.restore import origin, restore
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.state import MemoryStore, StateStore
from headwater.commands.receipt import Receipt, receipt_key
from headwater.eventlog.envelope import CLIENT, Envelope, encode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import EVENTS, RECEIPTS, SNAPSHOTS
from headwater.samples.listings.domain import Listed, Listing, PriceChanged, listing
from tests.support.domains import SHIPPED
from tests.support.receipt_keys import short_key

REGISTRY = CommandRegistry.load(SHIPPED)
TIME = datetime(2026, 1, 2, tzinfo=UTC)


def append(log: MemoryLog, entries: Sequence[Entry]) -> None:
    transaction = log.own(0).begin()
    transaction.append(entries)
    transaction.commit()


def serve(log: MemoryLog, prices: Sequence[int], first: int = 0) -> dict[str, bytes | None]:
    """Write what comes of listing L1 and repricing it; returns its receipts."""
    listed = {"city": "S", "zip": "95838", "property_type": "Condo", "beds": 1, "baths": 1.0, "square_feet": 1}
    listed |= {"price": 1, "latitude": 1.0, "longitude": 1.0}
    commands: list[tuple[str, Mapping[str, object]]] = [("listing.list_property", listed)]
    commands += [("listing.change_price", {"price": price}) for price in prices]
    records = []
    for number, (command_type, body) in enumerate(commands):
        envelope = Envelope(f"c{number}", command_type, "listing/L1", TIME, {"listing_id": "L1", **body})
        records.append(Record("commands", 0, number, "", encode(envelope), 0))
    store = MemoryStore()
    restore(log, REGISTRY, 0, store)
    batch = Handler(REGISTRY, 0, 1, store).decide(records[first:], 0)
    entries = [heartbeat(0, TIME), *batch.entries]
    receipts = batch.receipts(range(len(batch.entries)))
    append(log, [*entries, *(Entry(RECEIPTS, key, value, 0) for key, value in receipts.items())])
    return receipts


def restored(log: MemoryLog) -> MemoryStore:
    store = MemoryStore()
    restore(log, REGISTRY, 0, store)
    return store


def test_snapshots_and_receipts_are_restored() -> None:
    log = MemoryLog(partitions=1)
    receipts = serve(log, [2, 3])
    store = restored(log)
    state, version = read_snapshot(listing, store.snapshot("listing/L1") or b"")
    assert (state.price, version) == (3, 3)
    assert {key: store.receipts([key])[0] for key in receipts} == receipts
    assert store.snapshot("listing/L2") is None
    assert store.receipts(["c9"])[0] is None


def test_a_store_that_knows_some_reads_only_the_rest() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    store = restored(log)
    known = store.position(SNAPSHOTS)
    serve(log, [2, 3], first=2)
    read = reads(log)
    restore(log, REGISTRY, 0, store)
    assert read[SNAPSHOTS] == known > 0
    assert read[RECEIPTS] > 0
    assert read_snapshot(listing, store.snapshot("listing/L1") or b"")[1] == 3
    assert store.position(SNAPSHOTS) == log.end(SNAPSHOTS, 0)


def other_shape(snapshot: bytes) -> bytes:
    return orjson.dumps(orjson.loads(snapshot) | {"shape": "0" * 16})


def other_state(snapshot: bytes) -> bytes:
    return orjson.dumps(orjson.loads(snapshot) | {"state": {"status": "burnt down"}})


def other_version(snapshot: bytes) -> bytes:
    return orjson.dumps(orjson.loads(snapshot) | {"version": "7"})


@pytest.mark.parametrize("damage", [other_shape, other_state, other_version, lambda _: b"{", lambda _: b"[]"])
def test_a_snapshot_that_does_not_fit_is_folded_anew_from_its_events(damage: Callable[[bytes], bytes]) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2, 3, 4])
    good = restored(log).snapshot("listing/L1")
    append(log, [Entry(SNAPSHOTS, "listing/L1", damage(good or b""), 0)])
    assert restored(log).snapshot("listing/L1") == good


def erase(log: MemoryLog, *keys: str, compacted: bool) -> None:
    """Erase events: their tombstones are in the log, or compaction has removed all of them."""
    if not compacted:
        append(log, [Entry(EVENTS, key, None, 0) for key in keys])
        return
    places = log._records[EVENTS, 0]
    places[:] = [None if place is not None and place[0].key in keys else place for place in places]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(("erased", "price"), [([2], 4), ([4], 3), ([2, 3, 4], 1)])
def test_a_stream_with_erased_events_is_folded_from_the_others(compacted: bool, erased: list[int], price: int) -> None:
    """It keeps its version, so that no erased event's id is given again."""
    log = MemoryLog(partitions=1)
    serve(log, [2, 3, 4])
    good = restored(log).snapshot("listing/L1") or b""
    append(log, [Entry(SNAPSHOTS, "listing/L1", other_shape(good), 0)])
    erase(log, *(f"listing/L1/{version}" for version in erased), compacted=compacted)
    state, version = read_snapshot(listing, restored(log).snapshot("listing/L1") or b"")
    assert version == 4
    assert state.price == price


def test_a_stream_of_which_all_was_erased_but_the_version_goes_on_from_it() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1") or b""
    append(log, [Entry(SNAPSHOTS, "listing/L1", other_shape(good), 0)])
    erase(log, "listing/L1/1", "listing/L1/2", compacted=True)
    assert read_snapshot(listing, restored(log).snapshot("listing/L1") or b"") == (Listing(), 2)


def test_erased_events_count_where_no_snapshot_tells_the_version() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    append(log, [Entry(SNAPSHOTS, "listing/L1", b"{", 0), Entry(EVENTS, "listing/L1/3", None, 0)])
    assert read_snapshot(listing, restored(log).snapshot("listing/L1") or b"")[1] == 3


@pytest.mark.parametrize("chunk", [1, 5_000])
def test_what_is_no_part_of_the_stream_that_its_owner_wrote_is_not_folded(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.commands.handling.refold.CHUNK_RECORDS", chunk)
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1") or b""
    append(
        log,
        [Entry(EVENTS, "listing/L1/9", unreadable(9), 0), Entry(SNAPSHOTS, "listing/L1", other_shape(good), 0)],
    )
    assert restored(log).snapshot("listing/L1") == good


def unreadable(version: int) -> bytes:
    return encode(Envelope(f"listing/L1/{version}", "listing.sold", "listing/L1", TIME, {}, sequence=version))


def ask(store: StateStore, *names: str) -> dict[str, Receipt]:
    """How commands to these listings are answered, by listing."""
    records = []
    for number, name in enumerate(names):
        body = {"listing_id": name, "price": 5}
        envelope = Envelope(f"x{number}", "listing.change_price", f"listing/{name}", TIME, body)
        records.append(Record("commands", 0, number, "", encode(envelope), 0))
    batch = Handler(REGISTRY, 0, 1, store).decide(records, 0)
    receipts = batch.receipts(range(len(batch.entries)))
    answers = {short_key(key): value or b"" for key, value in receipts.items()}
    return {name: Receipt.from_json(answers[f"x{number}"]) for number, name in enumerate(names)}


@pytest.mark.parametrize("chunk", [1, 2, 5_000])
@pytest.mark.parametrize(
    "broken",
    [
        Entry(EVENTS, "listing/L1/3", unreadable(3), 0),
        Entry(EVENTS, "listing/L1/3", b"{", 0),
        Entry(EVENTS, "listing/L1/1", unreadable(1), 0),  # a version that comes twice
    ],
)
def test_a_stream_that_cannot_be_folded_fails_its_own_commands_and_is_tried_again_at_the_next_restore(
    broken: Entry, chunk: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.commands.handling.refold.CHUNK_RECORDS", chunk)
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1") or b""
    damaged = good.replace(b'"version":2', b'"version":3').replace(listing.shape.encode(), b"0" * 16)
    append(log, [broken, Entry(SNAPSHOTS, "listing/L1", damaged, 0)])
    store = restored(log)
    assert '"listing/L1" cannot be folded' in caplog.text
    answers = ask(store, "L1", "L2")
    assert [answer.outcome for answer in answers.values()] == ["failed", "rejected"]
    error = answers["L1"].error
    assert error is not None
    assert error.code == "unreadable_state"
    assert "cannot be folded" in error.message

    places = log._records[EVENTS, 0]  # somebody takes it out, or repairs the code
    places[:] = [None if place is not None and place[0].value == broken.value else place for place in places]
    restore(log, REGISTRY, 0, store)
    assert ask(store, "L1")["L1"].outcome == "accepted"
    read = reads(log)
    restore(log, REGISTRY, 0, store)
    assert EVENTS not in read


def test_a_rule_that_fails_for_all_streams_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    entries = [Entry(EVENTS, f"listing/L{number}/1", unreadable(1), 0) for number in range(100)]
    append(log, [*entries, *(Entry(SNAPSHOTS, f"listing/L{number}", b"{}", 0) for number in range(100))])
    restored(log)
    assert caplog.text.count("cannot be folded at") == 10
    assert '100 streams of "listing" cannot be folded' in caplog.text


def reads(log: MemoryLog) -> dict[str, int]:
    """By topic, the lowest offset that is read from now on."""
    read: dict[str, int] = {}
    whole = log.read

    def noting(topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        read[topic] = min(start, read.get(topic, start))
        return whole(topic, partition, start, end)

    log.read = noting  # type: ignore[method-assign]
    return read


def with_state_version(version: int) -> CommandRegistry:
    """The registry after a change of what `evolve` of a listing makes."""
    changed = replace(listing, state_version=version)
    return CommandRegistry(
        (aggregate.name, changed if aggregate.name == "listing" else aggregate)
        for aggregate in REGISTRY.aggregates.values()
    )


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    opened: StateStore = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "0", "a", DiskBudget())
    yield opened
    opened.close()


def test_a_change_of_one_state_folds_its_own_streams_and_reads_nothing_else_again(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.commands.handling.refold.PROGRESS_S", 0.0)
    caplog.set_level("INFO")
    log = MemoryLog(partitions=1)
    receipts = serve(log, [2, 3])
    restore(log, REGISTRY, 0, store)
    append(log, [Entry(SNAPSHOTS, "refund/R1", b"whatever", 0)])
    others = CommandRegistry((name, aggregate) for name, aggregate in REGISTRY.aggregates.items() if name != "refund")
    restore(log, others, 0, store)
    ends = {topic: log.end(topic, 0) for topic in (SNAPSHOTS, RECEIPTS)}
    read = reads(log)
    changed = with_state_version(2)
    assert restore(log, CommandRegistry(
        (name, aggregate) for name, aggregate in changed.aggregates.items() if name != "refund"
    ), 0, store) == (0, 0, 1)  # fmt: skip
    assert read == {EVENTS: 0} | ends
    state, version = read_snapshot(changed.aggregates["listing"], store.snapshot("listing/L1") or b"")
    assert (state.price, version) == (3, 3)
    assert {key: store.receipts([key])[0] for key in receipts} == receipts
    assert store.snapshot("refund/R1") == b"whatever"
    assert "80 % (4 of 5 offsets" in caplog.text

    # and back again, with an aggregate that was not declared for a while
    assert restore(log, REGISTRY, 0, store).refolded == 1
    assert read_snapshot(listing, store.snapshot("listing/L1") or b"")[1] == 3
    assert '"refund/R1" cannot be folded' in caplog.text


def test_a_state_that_did_not_change_is_not_looked_at_again(store: StateStore) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    restore(log, REGISTRY, 0, store)
    read = reads(log)
    assert restore(log, REGISTRY, 0, store) == (0, 0, 0)
    assert EVENTS not in read


def test_a_state_that_its_rules_make_unreadable_fails_its_own_commands(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1") or b""
    append(log, [Entry(SNAPSHOTS, "listing/L1", other_shape(good), 0)])
    invalid = replace(listing, evolve=broken_evolve)
    registry = CommandRegistry([("here", invalid)])
    store = MemoryStore()
    restore(log, registry, 0, store)
    assert "cannot be folded" in caplog.text
    with pytest.raises(UnreadableSnapshot):
        read_snapshot(listing, store.snapshot("listing/L1") or b"")


def broken_evolve(state: Listing, event: Listed | PriceChanged) -> Listing:
    return state.model_copy(update={"price": "a lot"})


def test_snapshots_of_aggregates_that_are_gone_are_kept() -> None:
    log = MemoryLog(partitions=1)
    append(log, [Entry(SNAPSHOTS, "ghost/1", b"{}", 0)])
    assert restored(log).snapshot("ghost/1") == b"{}"


def test_a_tombstone_forgets_a_receipt_but_not_the_version_of_a_stream() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1")
    key = receipt_key("listing/L1", CLIENT, "c0")
    append(log, [Entry(SNAPSHOTS, "listing/L1", None, 0), Entry(RECEIPTS, key, None, 0)])
    store = restored(log)
    assert store.snapshot("listing/L1") == good
    assert store.receipts([key])[0] is None


@pytest.mark.parametrize("chunk", [1, 5_000])
def test_an_erased_event_that_cannot_be_read_fails_no_stream(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its tombstone comes much later."""
    monkeypatch.setattr("headwater.commands.handling.refold.CHUNK_RECORDS", chunk)
    log = MemoryLog(partitions=1)
    serve(log, [2])
    good = restored(log).snapshot("listing/L1") or b""
    damaged = other_shape(good.replace(b'"version":2', b'"version":3'))
    append(log, [Entry(EVENTS, "listing/L1/3", unreadable(3), 0), Entry(SNAPSHOTS, "listing/L1", damaged, 0)])
    assert ask(restored(log), "L1")["L1"].outcome == "failed"
    erase(log, "listing/L1/3", compacted=False)
    assert ask(restored(log), "L1")["L1"].version == 4


def test_a_store_that_is_ahead_of_the_log_is_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    store = MemoryStore()
    store.apply({"listing/ghost": b"{}"}, {"ghost": b"{}"}, {SNAPSHOTS: 1_000})
    restore(log, REGISTRY, 0, store)
    assert "rebuilding" in caplog.text
    assert (store.snapshot("listing/ghost"), store.receipts(["ghost"])[0]) == (None, None)
    assert read_snapshot(listing, store.snapshot("listing/L1") or b"")[1] == 2


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_a_restore_that_is_broken_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """Also in the midst of folding: three streams, whose snapshots are damaged, with interleaved events."""
    monkeypatch.setattr("headwater.commands.handling.refold.CHUNK_RECORDS", 2)
    log = MemoryLog(partitions=1)
    names = [f"listing/L{number}" for number in range(3)]
    body = {"city": "S", "zip": "95838", "property_type": "Condo", "beds": 1, "baths": 1.0, "square_feet": 1}
    body |= {"price": 1, "latitude": 1.0, "longitude": 1.0}
    steps: list[tuple[str, Mapping[str, object]]] = [("listing.list_property", body)]
    steps += [("listing.change_price", {"price": price}) for price in (2, 3)]
    records: list[Record] = []
    for command_type, data in steps:
        for name in names:
            identified = {"listing_id": name.partition("/")[2], **data}
            envelope = Envelope(f"{name}{len(records)}", command_type, name, TIME, identified)
            records.append(Record("commands", 0, len(records), "", encode(envelope), 0))
    batch = Handler(REGISTRY, 0, 1, MemoryStore()).decide(records, 0)
    append(log, [*batch.events, *(Entry(SNAPSHOTS, name, b"damaged", 0) for name in names)])
    store = MemoryStore()
    calls = iter(range(100))
    restore(log, REGISTRY, 0, store, lambda: next(calls) >= chunks)
    restore(log, REGISTRY, 0, store)
    states = [read_snapshot(listing, store.snapshot(name) or b"") for name in names]
    assert [(state.price, version) for state, version in states] == [(3, 3)] * 3


def test_another_log_is_another_origin() -> None:
    log = MemoryLog(partitions=1)
    assert origin(log) == origin(log)
    assert origin(MemoryLog(partitions=1)) != origin(log)
