"""Restoring a partition from the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import orjson
import pytest

from commands.aggregates.listing import Listing, listing
from commands.codec import read_snapshot, write_snapshot
from commands.handler import Handler
from commands.registry import CommandRegistry
from commands.restore import origin, restore
from commands.service import heartbeat
from commands.state import MemoryStore
from eventlog.envelope import Envelope, encode
from eventlog.memory import MemoryLog
from eventlog.ports import Entry, Record
from eventlog.topics import EVENTS, RECEIPTS, SNAPSHOTS

REGISTRY = CommandRegistry.load()
TIME = datetime(2026, 1, 2, tzinfo=UTC)


def append(log: MemoryLog, entries: Sequence[Entry]) -> None:
    transaction = log.own(0).begin()
    transaction.append(entries)
    transaction.commit()


def serve(log: MemoryLog, prices: Sequence[int], first: int = 0) -> dict[str, bytes | None]:
    """Write what comes of listing L1 and repricing it; returns its receipts."""
    listed = {"city": "S", "zip": "95838", "property_type": "Condo", "beds": 1, "baths": 1.0, "square_feet": 1}
    listed |= {"price": 1, "latitude": 1.0, "longitude": 1.0}
    commands = [("listing.list_property", listed), *(("listing.change_price", {"price": price}) for price in prices)]
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
    assert {key: store.receipt(key) for key in receipts} == receipts
    assert store.snapshot("listing/L2") is None
    assert store.receipt("c9") is None


def test_a_store_that_knows_some_reads_only_the_rest() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    store = restored(log)
    known = store.position(SNAPSHOTS)
    serve(log, [2, 3], first=2)
    read: list[int] = []
    whole = log.read

    def noting(topic: str, partition: int, start: int, end: int | None = None):  # type: ignore[no-untyped-def]
        read.append(start)
        return whole(topic, partition, start, end)

    log.read = noting  # type: ignore[method-assign]
    restore(log, REGISTRY, 0, store)
    assert known in read
    assert 0 not in read
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


def test_a_stream_with_a_gap_fails_its_own_commands_only(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    snapshot = write_snapshot(listing, Listing(), 1)
    foreign = encode(Envelope("listing/L1/9", "listing.sold", "listing/L1", TIME, {}, sequence=9))
    append(log, [Entry(EVENTS, "listing/L1/9", foreign, 0), Entry(SNAPSHOTS, "listing/L1", other_shape(snapshot), 0)])
    store = restored(log)
    assert "cannot be folded" in caplog.text
    records = []
    for number, name in enumerate(("L1", "L2")):
        body = {"listing_id": name, "price": 5}
        envelope = Envelope(f"x{number}", "listing.change_price", f"listing/{name}", TIME, body)
        records.append(Record("commands", 0, number, "", encode(envelope), 0))
    batch = Handler(REGISTRY, 0, 1, store).decide(records, 0)
    assert [answer.outcome for answer in batch.answers.values()] == ["failed", "rejected"]


def test_snapshots_of_aggregates_that_are_gone_are_kept() -> None:
    log = MemoryLog(partitions=1)
    append(log, [Entry(SNAPSHOTS, "ghost/1", b"{}", 0)])
    assert restored(log).snapshot("ghost/1") == b"{}"


def test_a_tombstone_forgets() -> None:
    log = MemoryLog(partitions=1)
    serve(log, [])
    append(log, [Entry(SNAPSHOTS, "listing/L1", None, 0), Entry(RECEIPTS, "c0", None, 0)])
    store = restored(log)
    assert store.snapshot("listing/L1") is None
    assert store.receipt("c0") is None


def test_a_store_that_is_ahead_of_the_log_is_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog(partitions=1)
    serve(log, [2])
    store = MemoryStore()
    store.apply({"listing/ghost": b"{}"}, {"ghost": b"{}"}, {SNAPSHOTS: 1_000})
    restore(log, REGISTRY, 0, store)
    assert "rebuilding" in caplog.text
    assert (store.snapshot("listing/ghost"), store.receipt("ghost")) == (None, None)
    assert read_snapshot(listing, store.snapshot("listing/L1") or b"")[1] == 2


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_a_restore_that_is_broken_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """Also in the midst of folding: three streams, whose snapshots are damaged, with interleaved events."""
    monkeypatch.setattr("commands.restore.CHUNK_RECORDS", 2)
    log = MemoryLog(partitions=1)
    names = [f"listing/L{number}" for number in range(3)]
    body = {"city": "S", "zip": "95838", "property_type": "Condo", "beds": 1, "baths": 1.0, "square_feet": 1}
    body |= {"price": 1, "latitude": 1.0, "longitude": 1.0}
    steps = [("listing.list_property", body), *(("listing.change_price", {"price": price}) for price in (2, 3))]
    records = []
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


def test_another_log_and_another_state_are_another_origin() -> None:
    log = MemoryLog(partitions=1)
    assert origin(log, REGISTRY) == origin(log, REGISTRY)
    assert origin(MemoryLog(partitions=1), REGISTRY) != origin(log, REGISTRY)
    assert origin(log, CommandRegistry([])) != origin(log, REGISTRY)
