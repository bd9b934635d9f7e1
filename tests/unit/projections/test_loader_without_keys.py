"""A loader whose store of keys is away goes on with views that need none, and loses nothing of the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from headwater import Postgres
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import KeysAway
from headwater.projections.loading import loader as loader_module
from headwater.projections.loading import patch_reader
from headwater.projections.loading.loader import Loader
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from tests.contracts.view_histories import BY_THING
from tests.support.background import running
from tests.support.clear_customers import known_customers
from tests.support.memory_vault import memory_vault
from tests.support.waiting import eventually
from tests.unit.projections.test_loader_left_out import Patches

CLEAR, OTHER = Target(known_customers, 1), Target(replace(BY_THING, stores=(Postgres(),)), 1)


class Opening(MemoryStore):
    """A store that opens values of views with plaintext columns, as PostgreSQL does."""

    name = "postgres"

    def __init__(self, memory: Memory, keys: MemoryKeys) -> None:
        super().__init__(memory)
        self._keys, self.refused = keys, 0

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        if self._keys.is_away and CLEAR in targets and any(CLEAR.tag in batch.patches for batch in batches.values()):
            self.refused += 1
            raise KeysAway("it is away")
        super().apply(targets, batches)


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> Patches:
    made = Patches()
    monkeypatch.setattr(patch_reader, "Consumer", made)
    monkeypatch.setattr(loader_module, "REFRESH_S", -1.0)
    return made


def test_other_views_go_on_and_the_rest_follows(
    patches: Patches, keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, stop = Opening(Memory(), keys), threading.Event()
    for target in (CLEAR, OTHER):
        store.create(target, {}, {0: 0})
        patches.send(target, 5)
    loader = Loader(store, lambda: [CLEAR, OTHER], LogSettings(), partitions=[0])

    def rows() -> list[int]:
        for _ in range(len(patches.records) + 3):
            loader.step(stop)
        return [len(store.rows(target)) for target in (CLEAR, OTHER)]

    keys.is_away = True
    monkeypatch.setattr(loader_module, "LOOK_AGAIN_S", 0.5)
    with caplog.at_level(logging.WARNING, "headwater.projections.loading.loader"):
        assert rows() == [0, 1]
        assert 'goes on without generation 1 of "known_customers"' in caplog.text
        patches.send(OTHER, 6)
        assert rows() == [0, 1]
        assert sum(row["total"] for row in store.rows(OTHER).values()) == 2
        assert store.refused == 2, (
            "with the others and alone; then it asks the store of keys, and not again and again with patches"
        )
    keys.is_away = False
    eventually(lambda: rows() == [1, 1], "it is tried again")
    assert sum(row["total"] for row in store.rows(OTHER).values()) == 2, "what is read again is skipped"


def test_a_loader_of_such_a_view_alone_waits(patches: Patches, keys: MemoryKeys) -> None:
    store = Opening(Memory(), keys)
    store.create(CLEAR, {}, {0: 0})
    patches.send(CLEAR, 5)
    loader, keys.is_away = Loader(store, lambda: [CLEAR], LogSettings(), partitions=[0]), True
    with running(loader.run):
        eventually(lambda: store.refused > 1, "it tries again")
        assert not store.rows(CLEAR)
        keys.is_away = False
        eventually(lambda: bool(store.rows(CLEAR)), "it goes on")
