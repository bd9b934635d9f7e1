"""What holds for every registered aggregate, over random histories; a new aggregate is covered when it is added."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from command_histories import histories
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands.codec import fold, read_event, read_snapshot, write_snapshot
from commands.declaring.registry import AnyAggregate, CommandRegistry
from commands.handling.handler import Batch, Handler
from commands.local_state.state import MemoryStore
from commands.receipt import Receipt
from eventlog.envelope import Envelope, decode, encode, stream_name
from eventlog.ports import Record
from tests.domains import COVERED

REGISTRY = CommandRegistry.load(COVERED)
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
every_aggregate = pytest.mark.parametrize("aggregate", REGISTRY.aggregates.values(), ids=REGISTRY.aggregates)
thoroughly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def records(aggregate: AnyAggregate, history: list[tuple[str, dict[str, Any]]]) -> list[Record]:
    made = []
    for number, (command_type, body) in enumerate(history):
        stream = stream_name(aggregate.name, body[aggregate.id_field])
        envelope = Envelope(f"c{number}", command_type, stream, TIME + timedelta(seconds=number), body)
        made.append(Record("commands", 0, number, stream, encode(envelope), 0))
    return made


def run(store: MemoryStore, commands: list[Record]) -> tuple[Batch, dict[str, Receipt]]:
    batch = Handler(REGISTRY, 0, 1, store).decide(commands, 0)
    receipts = batch.receipts(range(len(batch.entries)))
    store.apply(batch.snapshots, receipts, {})
    return batch, {key: Receipt.from_json(value or b"") for key, value in receipts.items()}


@every_aggregate
@given(data=st.data())
@thoroughly
def test_every_command_is_accepted_or_rejected_and_versions_have_no_gap(
    aggregate: AnyAggregate, data: st.DataObject
) -> None:
    batch, receipts = run(MemoryStore(), records(aggregate, data.draw(histories(aggregate))))
    assert {receipt.outcome for receipt in receipts.values()} <= {"accepted", "rejected"}
    assert batch.dead_letters == []
    versions: dict[str, int] = {}
    for entry in batch.events:
        stream, _, version = entry.key.rpartition("/")
        assert int(version) == versions.get(stream, 0) + 1
        versions[stream] = int(version)
    for receipt in receipts.values():
        assert (receipt.outcome == "rejected") == (receipt.error is not None)
        assert receipt.version <= versions.get(receipt.stream, 0)


@every_aggregate
@given(data=st.data())
@thoroughly
def test_a_retry_of_everything_adds_nothing(aggregate: AnyAggregate, data: st.DataObject) -> None:
    store = MemoryStore()
    commands = records(aggregate, data.draw(histories(aggregate)))
    _, first = run(store, commands)
    again, receipts = run(store, commands)
    assert again.entries == []
    assert receipts == first


@every_aggregate
@given(data=st.data())
@thoroughly
def test_the_size_of_batches_makes_no_difference(aggregate: AnyAggregate, data: st.DataObject) -> None:
    commands = records(aggregate, data.draw(histories(aggregate)))
    whole, _ = run(MemoryStore(), commands)
    store = MemoryStore()
    one_by_one = [entry for record in commands for entry in run(store, [record])[0].events]
    assert one_by_one == whole.events


@every_aggregate
@given(data=st.data())
@thoroughly
def test_events_are_read_back_as_decided_and_a_snapshot_and_its_tail_are_the_whole_fold(
    aggregate: AnyAggregate, data: st.DataObject
) -> None:
    store = MemoryStore()
    batch, _ = run(store, records(aggregate, data.draw(histories(aggregate, streams=1))))
    envelopes = [decode(entry.value) for entry in batch.events]
    for envelope in envelopes:
        assert getattr(read_event(aggregate, envelope), aggregate.id_field) == "A0"
    state, version = fold(aggregate, envelopes)
    assert version == len(envelopes)
    for cut in range(1, len(envelopes)):
        snapshot = write_snapshot(aggregate, *fold(aggregate, envelopes[:cut]))
        assert fold(aggregate, envelopes[cut:], *read_snapshot(aggregate, snapshot)) == (state, version)
    kept = store.snapshot(stream_name(aggregate.name, "A0"))
    assert (kept is None) == (envelopes == [])
    if kept is not None:
        assert read_snapshot(aggregate, kept) == (state, version)
