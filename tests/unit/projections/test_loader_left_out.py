"""A generation that a loader cannot load is left out, named, and looked at again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
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
from headwater.projections.stores.store import Batch, Ledger, Target
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.background import running
from tests.support.waiting import eventually

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
    assert 'is beyond the end of partitions [0] of "patches", which may have been recreated' in problem
    assert problem in caplog.text
    assert store.ledgers(target)[0].next_offset == 5
    assert not loader.positions


class Broken(MemoryStore):
    """A store that cannot write the rows of some views, such as those of a closed index or a locked table."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.broken, self.tries, self.is_away = dict[str, Exception](), list[list[str]](), False

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        if self.is_away:
            raise StoreUnavailable("memory", "gone")
        return super().ledgers(target)

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self.tries.append([target.view.name for target in targets])
        for target in targets:
            if (error := self.broken.get(target.view.name)) is not None:
                raise error
        super().apply(targets, batches)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> tuple[Patches, Broken]:
    patches, store = Patches(), Broken(Memory())
    monkeypatch.setattr(patch_reader, "Consumer", patches)
    monkeypatch.setattr(loader_module, "REFRESH_S", -1.0)
    for target in TARGETS:
        store.create(target, {}, {0: 0})
        patches.send(target, 5)
    return patches, store


@pytest.mark.parametrize("error", [StoreUnavailable("memory", "index_closed_exception"), RuntimeError("no column")])
def test_a_view_that_its_store_cannot_write_stops_no_other(
    error: Exception, broken: tuple[Patches, Broken], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patches, store = broken
    monkeypatch.setattr(loader_module, "LOOK_AGAIN_S", 0.1)
    loader, stop = Loader(store, lambda: TARGETS, LogSettings(), partitions=[0]), threading.Event()

    def totals() -> list[int]:
        for _ in range(len(patches.records) + 3):
            loader.step(stop)
        return [sum(row["total"] for row in store.rows(target).values()) for target in TARGETS]

    store.broken = {BY_GROUP.name: error}
    assert totals() == [1, 0]
    assert f'goes on without generation 1 of "{BY_GROUP.name}", which is tried again in' in caplog.text
    patches.send(TARGETS[0], 6)
    patches.send(TARGETS[1], 6)
    assert totals() == [2, 0]
    store.broken = {}
    eventually(lambda: totals() == [2, 2], "it has what came meanwhile")
    assert not loader._aside


def test_a_view_that_fails_again_and_again_is_tried_less_and_less_often(
    broken: tuple[Patches, Broken], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, store = broken
    monkeypatch.setattr(loader_module, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(loader_module, "MOST_PAUSE_S", 0.03)
    loader, stop = Loader(store, lambda: TARGETS, LogSettings(), partitions=[0]), threading.Event()
    store.broken = {BY_GROUP.name: StoreUnavailable("memory", "locked")}

    def tried() -> bool:
        loader.step(stop)
        return caplog.text.count("goes on without") == 4

    eventually(tried, "it fails again")
    assert loader._aside[TARGETS[1].id][1] == 0.03


def test_who_waits_for_a_store_sees_that_a_view_is_paused(broken: tuple[Patches, Broken]) -> None:
    _, store = broken
    serving = list(TARGETS[1:])
    loader = Loader(store, lambda: serving, LogSettings(), partitions=[0])
    store.broken = {BY_GROUP.name: StoreUnavailable("memory", "locked")}
    with running(loader.run):
        eventually(lambda: len(store.tries) > 2, "it waits")
        serving[:] = TARGETS[:1]
        eventually(lambda: bool(store.rows(TARGETS[0])), "it goes on with the others")


def test_a_store_that_does_not_answer_is_not_asked_for_each_view(broken: tuple[Patches, Broken]) -> None:
    _, store = broken
    store.broken = {target.view.name: StoreUnavailable("memory", "gone") for target in TARGETS}
    loader = Loader(store, lambda: TARGETS, LogSettings(), partitions=[0])
    with running(loader.run):
        eventually(lambda: len(store.tries) > 3, "it waits")
        store.is_away = True
        before = len(store.tries)
        eventually(lambda: len(store.tries) > before + 4, "it tries again")
    assert [len(attempt) for attempt in store.tries[-3:]] == [2, 2, 2]
    assert not loader._aside
