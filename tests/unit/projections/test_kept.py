"""Generations that were not kept up for longer than Kafka keeps tombstones: they may have missed deletions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import compact_settings
from headwater.projections.errors import RebuildFailed
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.generations.rebuild.rebuild import Rebuild
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.generation import KEPT_FOR, Generation, missed_since, sees_deletions
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.upkeep import NOTED_S, KeptNotes
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import open as store_open
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.view_histories import BY_GROUP
from tests.support.captured_things import by_id, pairs, some
from tests.unit.replay.played import generation

DAY = timedelta(days=1)
STORES = ("memory", "postgres", "elasticsearch", "valkey")
SETTINGS = LogSettings(partitions=2, patch_partitions=2)


def ago(days: float) -> datetime:
    return datetime.now(UTC) - days * DAY


def made(view: View, live: float, kept: float | None = None, state: str = "live", number: int = 1) -> Generation:
    """A generation that went live so many days ago, and was noted as kept up so many days ago."""
    noted = {} if kept is None else dict.fromkeys(STORES, ago(kept).timestamp())
    return generation(
        view.name, number, state, tag=view.tag, fingerprint=view.fingerprint, created_at=ago(live + 1),
        live_at=ago(live), kept=noted, row_types=view.row_types,
    )  # fmt: skip


def test_views_whose_rows_are_deleted_with_those_of_a_table() -> None:
    assert sees_deletions(by_id)
    assert sees_deletions(pairs)
    assert sees_deletions(some), "what it shows of a row is null after that"
    assert not sees_deletions(BY_GROUP)


def test_the_limit_is_below_what_kafka_keeps() -> None:
    kept = timedelta(milliseconds=int(compact_settings(SETTINGS)["delete.retention.ms"]))
    assert timedelta(days=5) < KEPT_FOR < kept


@pytest.mark.parametrize(
    ("live", "kept", "missed"),
    [
        (5, None, False),  # it went live a few days ago
        (90, 5, False),
        (90, 7, True),
        (3, 7, False),  # it is live again
        (90, None, True),  # it was never kept up
    ],
)
def test_since_when_a_generation_may_have_missed_deletions(live: float, kept: float | None, missed: bool) -> None:
    assert (missed_since(by_id, made(by_id, live, kept), "memory") is not None) is missed
    assert missed_since(BY_GROUP, made(by_id, live, kept), "memory") is None


def test_the_clock_of_postgresql_decides_whether_deletions_may_be_missed() -> None:
    kept = made(by_id, 90, 7)
    assert missed_since(by_id, kept, "memory") is not None
    two_days_behind = replace(kept, read_at=ago(2))
    assert missed_since(by_id, two_days_behind, "memory") is None


@dataclass
class Registry:
    """Generations in memory."""

    generations: list[Generation]
    swapped: list[int] = field(default_factory=list)

    def paused(self) -> dict[str, datetime]:
        return {}

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[None]:
        yield

    def of(self, view: str) -> list[Generation]:
        return self.generations

    def live(self) -> dict[str, Generation]:
        return {each.view: each for each in self.generations if each.state == "live"}

    def serving(self, views: Iterable[View]) -> dict[str, Generation]:
        return self.live()


class Engine:
    """It has no patches, and notes whose it was asked for."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def patches(self, view: View, ranges: Ranges) -> list[tuple[str, str, int]]:
        self.read.append(view.name)
        return []


def stored(view: TableView, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store with the generation 1, which has applied all there is."""
    store = MemoryStore(Memory())
    store.create(Target(view, 1), {}, dict.fromkeys(range(SETTINGS.patch_partitions), 0))
    monkeypatch.setattr(store_open, "open_store", lambda *_: store)
    return store


@pytest.mark.parametrize(("view", "kept", "works"), [(by_id, 5, True), (by_id, 8, False), (BY_GROUP, 90, True)])
def test_a_generation_that_may_have_missed_deletions_is_not_rolled_back_to(
    view: TableView, kept: float, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(view, monkeypatch)
    monkeypatch.setattr(Rebuild, "follow", lambda self, then: iter(()))
    log, engine, queries = MemoryLog(partitions=2), Engine(), None
    log.submit(Entry("events", "k", b"{}", 0), 0)
    registry: Any = Registry([made(view, 90, kept, "retired"), made(view, 1, 0, number=2)])
    rebuilder = Rebuilder(SETTINGS, StoreSettings(), log, registry, engine, queries)  # type: ignore[arg-type]
    if works:
        assert rebuilder.roll_back(view).generation == 1
        return
    with pytest.raises(RebuildFailed) as error:
        rebuilder.roll_back(view)
    assert str(error.value).startswith("rollback of ")
    assert "rebuild of" not in str(error.value)
    assert f"run `replay rebuild {view.name}`" in str(error.value)
    assert f"it was last up to date at {ago(kept):%Y-%m-%d}" in str(error.value)
    assert engine.read == []


@pytest.mark.parametrize(("view", "kept", "lost"), [(by_id, 5, False), (by_id, 8, True), (BY_GROUP, 90, False)])
def test_a_view_that_may_have_missed_deletions_is_lost(
    view: TableView, kept: float, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(view, monkeypatch)
    registry: Any = Registry([made(view, 90, kept)])
    lags = Lags(SETTINGS, StoreSettings(), ViewRegistry([("here", view)]), registry, MemoryLog(partitions=2))
    found = lags.look()
    assert {lag.standing for lag in found} == {"lost" if lost else "caught up"}
    assert all(("may not have all deletions of captured rows" in each.problem) is lost for each in found)


def test_what_is_kept_up_is_noted_from_time_to_time_by_store() -> None:
    views: dict[str, View] = {view.name: view for view in (by_id, BY_GROUP)}
    here = Lag(by_id.name, "postgres", 1, 3, "behind", {}, 5, 0, 2.5)
    others = [replace(here, store="valkey", standing="lost"), replace(here, view=BY_GROUP.name)]
    notes = KeptNotes()
    assert notes.due([here, *others], views, 0.0) == [(by_id.name, 3, "postgres", 2.5)]
    assert notes.due([here, *others], views, NOTED_S - 1) == []
    assert notes.due([replace(here, generation=4)], views, NOTED_S - 1) == [(by_id.name, 4, "postgres", 2.5)]
    assert notes.due([replace(here, standing="caught up", freshness_s=0.0)], views, NOTED_S) == [
        (by_id.name, 3, "postgres", 0.0)
    ]
    for standing in ("away", "stalled", "not built"):
        assert notes.due([replace(here, standing=standing)], views, 10 * NOTED_S) == []
