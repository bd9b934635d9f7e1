"""The contract of SingleRows: a row is read with what it has applied, and replaced only if nothing changed it since."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headwater.eventlog.envelope import partition_of
from headwater.projections.errors import GenerationMissing, Unloadable
from headwater.projections.reading.reader import fold, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import SingleRows
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.open import backend
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, history, load
from tests.contracts.deciding import KINDS, of_views
from tests.contracts.fold_views import FOLD_VIEWS
from tests.contracts.opened_stores import RealServer
from tests.contracts.test_view_stores import CAPTURED, SERVERS, created, events_of
from tests.contracts.view_histories import BY_GROUP, BY_THING

VIEWS = {BY_THING.name: BY_THING, BY_GROUP.name: BY_GROUP, **FOLD_VIEWS}


@dataclass
class Opened:
    server: RealServer
    rows: SingleRows

    @property
    def store(self) -> ViewStore:
        return self.server.open()

    def change(self, target: Target, key: str, offset: int, total: int) -> None:
        """Apply one patch, in the partition of its row."""
        patch = Patch(key, "0", Place(offset, 0), {"total": total})
        partition = partition_of_row(target, key)
        self.store.apply([target], {partition: Batch(offset + 1, {target.tag: [patch]})})


def partition_of_row(target: Target, key: str) -> int:
    return partition_of(patch_key(target.tag, key), PARTITIONS)


@pytest.fixture(params=list(SERVERS))
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    endpoints = request.getfixturevalue("stack").endpoints
    settings = StoreSettings(
        f"t_{uuid.uuid4().hex[:12]}", endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS
    )
    single = backend(request.param).single_rows
    assert single is not None
    with SERVERS[request.param](settings) as server:
        yield Opened(server, single(settings))


@pytest.mark.parametrize("view", of_views(VIEWS.values(), KINDS))
def test_each_row_reads_as_it_was_folded_and_is_written_back_unchanged(opened: Opened, view: TableView) -> None:
    told, target = history(view, events_of(view), 1), created(opened.server, view)
    load(opened.store, target, told, random.Random(1))
    for key, state in states(view, told.sources).items():
        before = opened.rows.read(target, key)
        marked = {"_deleted": False} if before.state and "_deleted" in before.state else {}
        assert before.state is not None
        assert before.state | marked == opened.rows.as_read(state) | marked
        assert opened.rows.replace(target, key, before, state)
        assert opened.rows.read(target, key).state == before.state
    assert opened.server.rows(view) == fold(view, told.sources)


def test_a_row_is_not_replaced_once_a_patch_has_changed_it(opened: Opened) -> None:
    target = created(opened.server, BY_THING)
    missing = opened.rows.read(target, "a")
    assert missing.state is None
    opened.change(target, "a", 1, 5)
    assert not opened.rows.replace(target, "a", missing, {"total": 1})
    before = opened.rows.read(target, "a")
    assert before.has("0", Place(1, 0))
    assert not before.has("0", Place(2, 0))
    opened.change(target, "a", 2, 0)  # a patch that changes no value
    assert not opened.rows.replace(target, "a", before, {"total": 1})
    assert not opened.rows.replace(target, "a", before, None)
    assert opened.rows.replace(target, "a", opened.rows.read(target, "a"), {"total": 1})
    opened.change(target, "a", 3, 2)
    assert opened.server.rows(BY_THING)["a"]["total"] == 3
    opened.change(target, "a", 3, 2)
    assert opened.server.rows(BY_THING)["a"]["total"] == 3, "what is replaced has its ledger and its guard"


def test_a_row_is_removed_and_comes_back_with_the_next_patch(opened: Opened) -> None:
    target = created(opened.server, BY_THING)
    opened.change(target, "a", 1, 5)
    assert opened.rows.replace(target, "a", opened.rows.read(target, "a"), None)
    assert opened.rows.read(target, "a").state is None
    assert opened.server.rows(BY_THING) == {}
    assert opened.rows.replace(target, "a", opened.rows.read(target, "a"), None), "there is nothing left to remove"
    opened.change(target, "a", 1, 5)
    assert opened.server.rows(BY_THING) == {}
    opened.change(target, "a", 2, 7)
    assert opened.server.rows(BY_THING)["a"]["total"] == 7


def test_a_row_that_is_created_is_there_once(opened: Opened) -> None:
    target = created(opened.server, BY_THING, {CAPTURED: 5})
    before = opened.rows.read(target, "a")
    assert before.has(CAPTURED, Place(4, 0)), "bulk had it"
    assert opened.rows.replace(target, "a", before, {"total": 4})
    assert not opened.rows.replace(target, "a", before, {"total": 4})
    assert opened.server.rows(BY_THING)["a"]["total"] == 4


def test_what_a_store_cannot_hold_is_refused(opened: Opened) -> None:
    target = created(opened.server, BY_THING)
    opened.change(target, "a", 1, 5)
    with pytest.raises(Unloadable):
        opened.rows.replace(target, "a", opened.rows.read(target, "a"), {"total": 2**70})
    assert opened.server.rows(BY_THING)["a"]["total"] == 5


def test_a_generation_that_is_gone_is_named(opened: Opened) -> None:
    target = created(opened.server, BY_THING)
    before = opened.rows.read(target, "a")
    opened.store.drop(target)
    with pytest.raises(GenerationMissing):
        opened.rows.read(target, "a")
    with pytest.raises(GenerationMissing):
        opened.rows.replace(target, "a", before, {"total": 1})
