"""A generation that a loader cannot load is left out, named, and looked at again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import CannotLoad, StoreUnavailable
from headwater.projections.generations.rebuild import catching_up
from headwater.projections.generations.rebuild.engine import run_alone
from headwater.projections.loading import loader as loader_module
from headwater.projections.loading import patch_reader
from headwater.projections.loading.loader import Loader
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Ledger, Target
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.background import running

TARGETS = [Target(BY_THING, 1), Target(BY_GROUP, 1)]


class Patches:
    """One partition of `patches`, as a loader's client reads it."""

    def __init__(self, first: int = 0) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self._first = first
        self._at: int | None = None

    def __call__(self, _: Mapping[str, Any]) -> Patches:
        return self

    def send(self, target: Target, offset: int) -> None:
        value = {"p": 0, "o": offset, "i": 0, "c": {"total": 1}}
        self.records.append((patch_key(target.view.tag, "row").encode(), orjson.dumps(value)))

    def assign(self, places: list[Any]) -> None:
        self._at = places[0].offset if places else None

    def assignment(self) -> list[Any]:
        return []

    def close(self) -> None: ...

    def list_topics(self, *_: object, timeout: float) -> None:
        """Kafka answers, if it is asked because no record has come for long."""

    def get_watermark_offsets(self, _: object, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return self._first, self._first + len(self.records)

    def poll(self, _: float) -> Any:
        if self._at is None or self._at >= len(self.records):
            return None
        at, (key, value) = self._at, self.records[self._at]
        self._at += 1
        return SimpleNamespace(
            error=lambda: None, partition=lambda: 0, offset=lambda: at, key=lambda: key, value=lambda: value
        )

    def consume(self, *_: object) -> list[Any]:
        return []


class Losing(MemoryStore):
    """A store whose ledgers of one view are lost, or cannot be read, for a while."""

    lost: str | None = None
    settled = 0

    def settle(self, *, now: bool = False) -> None:
        self.settled += 1

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        found = super().ledgers(target)
        if target.view is not BY_GROUP or self.lost is None:
            return found
        if self.lost == "part":
            return {each: ledger for each, ledger in found.items() if each}
        if self.lost == "all":
            return {}
        raise StoreUnavailable("memory", "shards are not assigned")


@pytest.mark.parametrize("lost", ["all", "part"])
def test_what_was_lost_and_put_back_is_loaded_from_where_it_was(
    lost: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patches, store, stop = Patches(), Losing(Memory()), threading.Event()
    monkeypatch.setattr(patch_reader, "Consumer", patches)
    monkeypatch.setattr(loader_module, "REFRESH_S", -1.0)
    for target in TARGETS:
        store.create(target, {}, {0: 0, 1: 0})
        patches.send(target, 5)
    loader = Loader(store, lambda: TARGETS, LogSettings(), partitions=[0])

    def totals() -> list[int]:
        for _ in range(len(patches.records) + 2):
            loader.step(stop)
        return [sum(row["total"] for row in store.rows(target).values()) for target in TARGETS]

    store.lost = lost
    with caplog.at_level(logging.INFO, "headwater.projections.loading.loader"):
        assert totals() == [1, 0]
        patches.send(TARGETS[0], 6)
        patches.send(TARGETS[1], 6)
        assert totals() == [2, 0]
        assert caplog.text.count("replay rebuild by_group") == 1

        monkeypatch.setattr(loader_module, "LOOK_AGAIN_S", -1.0)
        assert totals() == [2, 0]
        store.lost = "away"
        assert totals() == [2, 0], "a store that is away holds up what can be loaded"
        store.lost = None
        assert totals() == [2, 2]
    assert caplog.text.count("replay rebuild by_group") == 1
    assert "memory has by_group g1 again" in caplog.text
    settled = store.settled
    assert settled
    patches.send(TARGETS[0], 7)
    loader.step(stop)
    assert store.settled == settled, "only when nothing comes"


@pytest.mark.parametrize(
    ("lost", "first", "error"),
    [
        (
            None,
            300,
            r"generation 1 of \"by_group\" in memory needs deleted patches 0 to 300 of partition 0: run `replay",
        ),
        ("part", 0, "has lost its ledger"),
    ],
    ids=["deleted patches", "lost ledger"],
)
def test_a_rebuild_does_not_wait_for_a_loader_that_has_left_its_generation_out(
    lost: str | None, first: int, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patch_reader, "Consumer", Patches(first))
    monkeypatch.setattr(catching_up, "LEDGERS_EVERY_S", 0.0)
    target, store = Target(BY_GROUP, 1), Losing(Memory())
    store.create(target, {}, {0: 0, 1: 0})
    store.lost = lost
    loader = Loader(store, lambda: [target], LogSettings(), partitions=[0, 1])
    with running(loader.run), pytest.raises(CannotLoad, match=error):
        run_alone(catching_up.catch_up(target, [store], [loader], lambda: {0: 1_000, 1: 0}, lambda *_: None))


def test_patches_that_begin_again_before_the_ledger_are_not_dropped_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patches, store, stop = Patches(), MemoryStore(Memory()), threading.Event()
    monkeypatch.setattr(patch_reader, "Consumer", patches)
    monkeypatch.setattr(loader_module, "REFRESH_S", -1.0)
    target = TARGETS[0]
    store.create(target, {}, {0: 0})
    for offset in range(5):
        patches.send(target, offset)
    loader = Loader(store, lambda: [target], LogSettings(), partitions=[0])
    while loader.positions.get(0) != 5:
        loader.step(stop)
    patches.records.clear()
    for offset in range(5, 8):
        patches.send(target, offset)
    patches._at = 0  # Kafka has no offset 5, and a client begins anew then
    with caplog.at_level(logging.INFO):
        loader.step(stop)
        loader.step(stop)
    problem = str(loader.left_out[target.id])
    assert 'is beyond the end of partitions [0] of "patches", which may have been deleted and made again' in problem
    assert problem in caplog.text
    assert store.ledgers(target)[0].next_offset == 5
    assert not loader.positions
