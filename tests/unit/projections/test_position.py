"""What a ledger says is applied: a live query that starts there leaves nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson
import pytest

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.source_positions import sources_of
from headwater.eventlog.topics import EVENTS
from headwater.projections.loading.decoding import read_into
from headwater.projections.reading.reader import fold, lift
from headwater.projections.stores.ledgers import position
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import LAST_NUMBER, Batch, Ledger, Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.patch import Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, SOURCES, history
from tests.contracts.fold_views import BY_PACKED_GROUP, BY_SKU

Record = tuple[Place, bytes, bytes]


def emitted(view: TableView, sources: Iterable[Source]) -> dict[int, list[Record]]:
    """What the live query writes to each partition of `patches`; its last records say how far it came."""
    records: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
    ends: dict[str, int] = {}
    for source in sources:
        ends[str(source.position.partition)] = source.position.offset
        for patch in lift(view, source):
            key = patch_key(view.tag, patch.key)
            change = {"p": int(patch.source), "o": patch.place.offset, "i": patch.place.number, "c": patch.fields}
            made = (patch.place, key.encode(), orjson.dumps(change))
            records[partition_of(key, PARTITIONS)].append(made)
    for source_id, end in ends.items():
        value = orjson.dumps({"p": int(source_id), "o": end, "v": [view.tag]})
        for record in records.values():
            record.append((Place(end, LAST_NUMBER), b"progress/%d" % int(source_id), value))
    return records


def load(store: MemoryStore, target: Target, records: Mapping[int, Iterable[Record]]) -> None:
    for partition, found in records.items():
        batch = Batch(0)
        for _, key, value in found:
            read_into(batch, key, value)
        store.apply([target], {partition: batch})


def starts(store: MemoryStore, target: Target) -> dict[str, int]:
    return position(store.ledgers(target), sources_of(EVENTS, SOURCES))


@pytest.mark.parametrize("view", [BY_SKU, BY_PACKED_GROUP], ids=lambda view: view.name)
def test_a_live_query_that_is_killed_between_any_two_patches_loses_none(view: TableView) -> None:
    """Producers write the partitions one by one: in the worst case one partition lacks what all others have."""
    sources, target = history(view, list(view.plan.events.values()), 3, length=40).sources, Target(view, 1)
    made, expected, within = emitted(view, sources), fold(view, sources), 0
    for partition, records in made.items():
        for cut in range(len(records)):
            within += cut > 0 and records[cut - 1][0].offset == records[cut][0].offset
            store = MemoryStore(Memory())
            store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
            load(store, target, made | {partition: records[:cut]})
            start = starts(store, target)
            rest = (source for source in sources if source.position.offset >= start[str(source.position.partition)])
            load(store, target, emitted(view, rest))
            assert store.rows(target) == expected, f"killed before record {cut} of partition {partition}"
    assert within > 5, "hardly any event was cut: the test tests nothing"


def test_progress_and_bulk_cover_whole_events_and_the_slowest_partition_counts() -> None:
    ledgers = {
        0: Ledger(9, {"0": Place(7, LAST_NUMBER), "1": Place(4, 0), "2": Place(3, LAST_NUMBER)}),
        1: Ledger(9, {"0": Place(7, LAST_NUMBER), "1": Place(4, LAST_NUMBER)}),
    }
    assert position(ledgers, ["0", "1", "2"]) == {"0": 8, "1": 4, "2": 0}
    assert position({}, ["0", "1"]) == {"0": 0, "1": 0}
