"""The ledgers in Elasticsearch, while they cannot be read and after a snapshot was restored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from elasticsearch import helpers

from headwater.compose.settings import StackSettings
from headwater.projections.errors import LedgerWentBack, StoreUnavailable
from headwater.projections.reading.reader import fold
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import index_name, ledger_index, write_alias
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.testing.contracts import PARTITIONS, History, history
from tests.contracts.opened_stores import OnElasticsearch
from tests.contracts.test_view_stores import created, events_of
from tests.contracts.view_histories import BY_GROUP
from tests.support.elasticsearch_client import elasticsearch
from tests.support.waiting import eventually


class Indexes(OnElasticsearch):
    """A store whose indexes are taken away and put back, as an operator does it."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self.client = elasticsearch(settings.elasticsearch)
        self.names = [index_name(settings.environment, BY_GROUP.name, 1), ledger_index(settings.environment)]

    def clean(self) -> None:
        super().clean()
        self.client.close()

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """All documents of the view and of the ledgers."""
        self.client.indices.refresh(index=",".join(self.names))
        return {name: list(helpers.scan(self.client, index=name)) for name in self.names}

    def restore(self, taken: dict[str, list[dict[str, Any]]]) -> None:
        """Indexes made anew with what they held then; the versions of their documents are others."""
        for name, hits in taken.items():
            kept = self.client.indices.get(index=name)[name]
            settings = {"number_of_shards": 1, "number_of_replicas": 0}
            self.client.indices.delete(index=name)
            self.client.indices.create(
                index=name, mappings=kept["mappings"], settings=settings, aliases=kept["aliases"]
            )
            again = [{"_index": name, "_id": hit["_id"], "_source": hit["_source"]} for hit in hits]
            helpers.bulk(self.client, again)
            helpers.bulk(self.client, again)  # versions go on from where they were then, not from the first one


@pytest.fixture
def indexes(stack: StackSettings) -> Iterator[Indexes]:
    at = stack.endpoints
    settings = StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, PARTITIONS)
    with Indexes(settings) as opened:
        yield opened


def apply(store: ViewStore, target: Target, told: History, start: int, end: int) -> None:
    for partition in range(PARTITIONS):
        batch = told.batch(partition, start, end)
        batch.first_offset = start
        store.apply([target], {partition: batch})


def test_the_rows_of_an_index_that_nobody_searches_are_counted(indexes: Indexes) -> None:
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    # as half a minute after the last search
    indexes.client.indices.put_settings(index=indexes.names[0], settings={"search.idle.after": "0s"})
    apply(indexes.open(), target, told, 0, 1_000)
    found = open_reader("elasticsearch", indexes.settings).size(target).rows
    assert found == len(indexes.snapshot()[indexes.names[0]])
    assert found


def test_after_a_restore_a_running_loader_reads_on_from_what_the_index_has(
    indexes: Indexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headwater.projections.stores.elasticsearch.ledgers.ROWS_INTERVAL_S", -1.0
    )  # a restore takes longer
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    store = indexes.open()
    apply(store, target, told, 0, 15)
    taken, rows = indexes.snapshot(), indexes.rows(BY_GROUP)
    apply(store, target, told, 15, 25)
    assert indexes.rows(BY_GROUP) != rows
    indexes.restore(taken)
    for partition in range(PARTITIONS):
        batch = told.batch(partition, 25, 1_000)
        batch.first_offset = 25
        with pytest.raises(LedgerWentBack) as noticed:
            store.apply([target], {partition: batch})
        assert (noticed.value.expected, noticed.value.actual) == (25, 15)
    assert indexes.rows(BY_GROUP) == rows, "written over rows that lack what came before"
    apply(store, target, told, 15, 1_000)
    assert indexes.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


def test_progress_alone_notices_a_restore_too(indexes: Indexes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.stores.elasticsearch.ledgers.PROGRESS_INTERVAL_S", -1.0)
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    store = indexes.open()
    apply(store, target, told, 0, 15)
    taken = indexes.snapshot()
    apply(store, target, told, 15, 25)
    indexes.restore(taken)
    nothing = told.batch(0, 25, 25)
    nothing.next_offset, nothing.first_offset = 26, 25
    store.apply([target], {0: nothing})
    nothing.next_offset, nothing.first_offset = 27, 26
    with pytest.raises(LedgerWentBack):
        store.apply([target], {0: nothing})


def test_a_ledger_that_cannot_be_read_is_waited_for(indexes: Indexes) -> None:
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    before = indexes.open()
    apply(before, target, told, 0, 15)
    ledger, after = indexes.names[1], indexes.open()
    indexes.client.indices.close(index=ledger)
    with pytest.raises(StoreUnavailable, match="closed"):
        after.ledgers(target)
    for store in (before, after):
        with pytest.raises(StoreUnavailable, match="closed"):
            apply(store, target, told, 15, 25)
    indexes.client.indices.open(index=ledger, wait_for_active_shards=0)  # its shard may not be assigned yet

    def found() -> bool:
        try:
            return {ledger.next_offset for ledger in after.ledgers(target).values()} == {15} or pytest.fail(
                "taken for lost"
            )
        except StoreUnavailable:
            return False

    eventually(found)
    for store in (before, after):
        apply(store, target, told, 15, 1_000)
    assert indexes.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


def test_an_index_that_takes_no_writes_is_waited_for(indexes: Indexes) -> None:
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    store = indexes.open()
    indexes.client.indices.put_settings(index=indexes.names[0], settings={"index.blocks.write": True})
    with pytest.raises(StoreUnavailable):
        apply(store, target, told, 0, 15)
    indexes.client.indices.put_settings(index=indexes.names[0], settings={"index.blocks.write": None})
    apply(store, target, told, 0, 1_000)
    assert indexes.rows(BY_GROUP) == fold(BY_GROUP, told.sources)
    assert indexes.client.indices.exists_alias(name=write_alias(indexes.names[0]))


def test_a_ledger_is_written_less_often_than_rows_and_soon_after_them(
    indexes: Indexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.projections.stores.elasticsearch.ledgers.ROWS_INTERVAL_S", 3_600.0)
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(indexes, BY_GROUP)
    store, other = indexes.open(), indexes.open()
    apply(store, target, told, 0, 15)
    apply(store, target, told, 15, 25)
    assert {ledger.next_offset for ledger in other.ledgers(target).values()} == {15}
    apply(store, target, told, 25, 30)
    store.settle()
    assert {ledger.next_offset for ledger in other.ledgers(target).values()} == {30}
    apply(store, target, told, 30, 1_000)
    assert indexes.rows(BY_GROUP) == fold(BY_GROUP, told.sources)
    # a loader that comes after a crash takes in again what the ledger does not have yet
    apply(indexes.open(), target, told, 30, 1_000)
    assert indexes.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


def test_a_ledger_without_rows_is_written_when_the_loader_is_idle(
    indexes: Indexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query of a stream view says how far it is right after its rows, and then nothing for a minute."""
    monkeypatch.setattr("headwater.projections.stores.elasticsearch.ledgers.PROGRESS_INTERVAL_S", 3_600.0)
    target, store, other = created(indexes, BY_GROUP), indexes.open(), indexes.open()
    for end in (5, 6):
        store.apply([target], {0: Batch(end, progress={target.tag: {"0": end}}, first_offset=0)})
    store.settle()
    assert other.ledgers(target)[0].next_offset == 5, "it was written a moment ago"
    monkeypatch.setattr("headwater.projections.stores.elasticsearch.ledgers.PROGRESS_INTERVAL_S", 0.0)
    store.settle()
    ledger = other.ledgers(target)[0]
    assert (ledger.next_offset, ledger.reached("0")) == (6, 7)
