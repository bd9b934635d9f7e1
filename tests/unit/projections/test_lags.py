"""The state of each view: counted from its own position, and by the clock of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.sources import sources, topic_ids
from headwater.projections.generations.registry.state_files import note_failure
from headwater.projections.generations.upkeep import lag_reader as tails
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.upkeep import to_replay
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import open as store_open
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.view_histories import BY_GROUP
from tests.support.clear_customers import known_customers
from tests.support.memory_vault import memory_vault
from tests.support.observed import gate_view
from tests.unit.replay.played import generation

SETTINGS = LogSettings(partitions=1, patch_partitions=1)
GATES = gate_view(stores=(Postgres(),))
READ_AT = datetime(2031, 1, 1, 12, tzinfo=UTC)
"""The time of PostgreSQL, years from that of this machine."""
KNOWN = replace(known_customers, name="known", stores=known_customers.stores[:1])
SLOW, FAST, NEW = (replace(BY_GROUP, name=name) for name in ("slow", "fast", "new"))


@dataclass
class Registry:
    live: dict[str, Generation] = field(default_factory=dict)

    def serving(self, _: Iterable[View]) -> Mapping[str, Generation]:
        return self.live


class CountingLog(MemoryLog):
    """A log that notes how many offsets of `events` are read."""

    read_offsets = 0

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Any:
        for record in super().read(topic, partition, start, end):
            self.read_offsets += topic == EVENTS
            yield record


class Scene:
    """Views in a store. `E` is an event and `h` a heartbeat of the log, one per second, the last one at READ_AT."""

    def __init__(self, log: str, monkeypatch: pytest.MonkeyPatch, **reached: int) -> None:
        views: dict[str, View] = {"slow": SLOW, "fast": FAST, "new": NEW, "gates": GATES, "known": KNOWN}
        self.log, self.registry, self.store = CountingLog(partitions=1), Registry(), MemoryStore(Memory())
        monkeypatch.setattr(store_open, "open_store", lambda *_: self.store)
        self.views = [views[name] for name in reached]
        for view in self.views:
            self.registry.live[view.name] = generation(
                view.name, 1, "live", tag=view.tag, read_at=READ_AT, topics=topic_ids(self.log, [view]),
                fingerprint=view.fingerprint, row_types=view.row_types,
            )  # fmt: skip
            (source,) = sources([view], SETTINGS)
            self.store.create(Target(view, 1), {source: reached[view.name]}, {0: 0})
        for number, kind in enumerate(log):
            key = heartbeat_key(0) if kind == "h" else f"thing/{number}/1"
            at = READ_AT - timedelta(seconds=len(log) - 1 - number)
            self.log.submit(Entry(EVENTS, key, b"{}", int(at.timestamp() * 1000)), 0).result()

    def look(self, settings: LogSettings = SETTINGS) -> dict[str, Lag]:
        return {each.view: each for each in self.lags(settings).look()}

    def lags(self, settings: LogSettings = SETTINGS) -> Lags:
        registry: Any = self.registry
        views = ViewRegistry([("here", view) for view in self.views])
        return Lags(settings, StoreSettings(), views, registry, self.log)

    def shown(self) -> dict[str, tuple[str, int | None, float | None]]:
        return {name: (lag.standing, lag.lag_events, lag.freshness_s) for name, lag in self.look().items()}


@pytest.fixture(autouse=True)
def three_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "COUNTED_RECORDS", 3)
    monkeypatch.setattr(tails, "READ_RECORDS", 2)


def test_a_view_is_measured_from_its_own_position_however_far_another_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("EEhEEEEEEhEh", monkeypatch, slow=1, fast=9)
    assert scene.shown() == {"slow": ("behind", 9, 10.0), "fast": ("behind", 1, 1.0)}
    assert Scene("EEEEEEEEEh", monkeypatch, slow=1, fast=9).shown()["fast"] == ("caught up", 0, 0.0), (
        "what it has not read is a heartbeat"
    )


def test_a_log_is_read_once_for_all_views_and_only_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("E" * 100, monkeypatch, slow=10, fast=98, new=99)
    assert scene.shown() == {"slow": ("behind", 90, 89.0), "fast": ("behind", 2, 1.0), "new": ("behind", 1, 0.0)}
    assert scene.log.read_offsets == 3 + 2, "the end, and the first event that `slow` lacks"


def test_a_store_is_opened_once_for_all_views_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, opened, closed = Scene("E", monkeypatch, slow=0, fast=1, new=1), list[str](), list[None]()

    def open_store(name: str, _: StoreSettings) -> MemoryStore:
        opened.append(name)
        return scene.store

    monkeypatch.setattr(store_open, "open_store", open_store)
    monkeypatch.setattr(scene.store, "close", lambda: closed.append(None))
    scene.look()
    assert (sorted(opened), len(closed)) == (["elasticsearch", "postgres", "valkey"], 3)


def test_a_store_is_asked_once_for_the_ledgers_of_all_views(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, asked = Scene("E", monkeypatch, slow=0, fast=1, new=1), list[list[str]]()
    read = scene.store.all_ledgers

    def all_ledgers(targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        asked.append([target.view.name for target in targets])
        return read(targets)

    monkeypatch.setattr(scene.store, "all_ledgers", all_ledgers)
    scene.look()
    assert asked == [["slow", "fast", "new"]] * 3, "once in PostgreSQL, in Elasticsearch and in Valkey"


@pytest.mark.parametrize(
    ("log", "reached", "shown"),
    [
        ("", 0, ("caught up", 0, 0.0)),
        ("hhhhhhhh", 0, ("behind", 5, 0.0)),  # before the counted end, offsets are counted
        ("hhhhhhEh", 0, ("behind", 6, 1.0)),
        ("EEEEEhhh", 4, ("behind", 1, 3.0)),
        ("EEEEEhhh", 5, ("caught up", 0, 0.0)),
        ("EEEEEhhh", 8, ("caught up", 0, 0.0)),
    ],
)
def test_the_lag_at_the_edges_of_what_is_counted(
    log: str, reached: int, shown: tuple[str, int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Scene(log, monkeypatch, slow=reached).shown()["slow"] == shown


def test_a_view_without_its_ledger_is_lost_and_does_not_change_how_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("E" * 20, monkeypatch, slow=0, fast=19)
    scene.store.drop(Target(SLOW, 1))
    assert {name: each[:2] for name, each in scene.shown().items()} == {"slow": ("lost", None), "fast": ("behind", 1)}
    assert scene.log.read_offsets == 1


def test_a_stream_view_whose_query_has_lost_its_state_is_lost_until_a_new_generation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene, settings = Scene("", monkeypatch, gates=0), replace(SETTINGS, state=tmp_path)
    note_failure(settings, "gates@1.g1", "its state is gone", "is gone")
    found = scene.look(settings)["gates"]
    assert (found.standing, to_replay([found], lambda _: False)) == ("lost", ["gates"])
    assert found.problem == (
        "its state is gone: `headwater projections` computes the view again; or run `replay rebuild gates`"
    )


def test_a_paused_view_is_neither_stalled_nor_replayed_however_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("E" * 20, monkeypatch, slow=0, fast=19)
    since = datetime(2031, 1, 1, 11, tzinfo=UTC)
    scene.registry.live["slow"] = replace(scene.registry.live["slow"], paused_since=since)
    found = scene.look()["slow"]
    assert (found.standing, found.lag_events, found.fault) == ("paused", 20, "nobody")
    assert found.problem == "since 2031-01-01 11:00:00 UTC: run `replay resume slow`"
    assert found.paused_since == "2031-01-01T11:00:00+00:00"
    assert found.since(found, {"0": 20}).standing == "paused"
    assert to_replay(scene.look().values(), lambda _: True) == ["fast"]
    scene.store.drop(Target(SLOW, 1))
    lost = scene.look()["slow"]
    assert (lost.standing, to_replay([lost], lambda _: True)) == ("paused", [])
    assert "It is lost meanwhile, and replayed after that: its ledger" in lost.problem


def test_a_view_that_has_read_what_is_no_longer_in_the_log_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("EE", monkeypatch, slow=2, fast=3)
    found = scene.look()
    assert [found[name].standing for name in ("slow", "fast")] == ["caught up", "lost"]
    assert found["fast"].problem == "0 was recreated since it was read: run `replay rebuild fast`"


@pytest.mark.parametrize("topic", [PATCHES, EVENTS])
def test_a_topic_that_was_made_again_is_noticed_by_its_id_however_long_it_is(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene("E" * 9, monkeypatch, slow=5, gates=0)
    assert scene.look()["slow"].standing == "behind"
    before = scene.log.incarnation
    monkeypatch.setattr(scene.log, "incarnation", lambda each: "another" if each == topic else before(each))
    found = scene.look()
    assert (found["slow"].standing, found["gates"].standing) == ("lost", "lost" if topic == PATCHES else "caught up")
    assert found["slow"].problem == (f'topic "{topic}" was recreated since it was built: run `replay rebuild slow`')


def test_patches_that_end_before_a_ledger_are_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("E", monkeypatch, slow=0)
    scene.store._memory.generations[Target(SLOW, 1).id].ledgers[0] = Ledger(1, {})
    found = scene.look()["slow"]
    assert found.standing == "lost"
    assert found.problem == '"patches" ends before its ledger in partition 0: run `replay rebuild slow`'


def test_patches_that_the_loader_has_not_read_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("E", monkeypatch, slow=0, fast=0)
    for _ in range(5):
        scene.log.submit(Entry(PATCHES, "progress/0", b"{}", 0), 0).result()
    scene.store._memory.generations[Target(FAST, 1).id].ledgers[0] = Ledger(2, {})
    assert {name: lag.lag_patches for name, lag in scene.look().items()} == {"slow": 5, "fast": 3}


def test_a_view_of_which_only_an_earlier_version_is_built_is_shown_as_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("E" * 9, monkeypatch, slow=0, fast=9)
    scene.views[0] = replace(SLOW, version=7)
    found = scene.look()
    assert (found["slow"].standing, found["slow"].generation, found["slow"].version) == ("not built", 1, 1)
    assert found["slow"].problem == "version 7 is not built: run `replay rebuild slow`"
    assert scene.log.read_offsets == 0, "nothing loads it"


def problem(view: TableView, monkeypatch: pytest.MonkeyPatch, **live: Any) -> str:
    scene = Scene("", monkeypatch, slow=0)
    scene.registry.live[view.name] = replace(scene.registry.live[view.name], **live)
    return scene.look()[view.name].problem


def test_a_view_that_changed_without_a_new_version_is_shown_as_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("EEh", monkeypatch, slow=1, fast=1)
    scene.registry.live["slow"] = replace(scene.registry.live["slow"], row_types=["key text"])
    found = scene.look()
    assert (found["slow"].standing, found["fast"].standing) == ("not built", "behind")
    assert "the declaration changed, but the version is still 1: raise the version" in found["slow"].problem


def test_the_status_of_a_view_says_that_replays_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    later = READ_AT + timedelta(seconds=60)
    told = problem(SLOW, monkeypatch, replays=3, next_replay=later)
    assert "replayed 3 times in a row" in told
    assert f"not before {later:%H:%M:%S} UTC" in told
    assert problem(SLOW, monkeypatch, replays=3, next_replay=READ_AT - timedelta(seconds=1)) == ""
    assert "replay publish slow" in problem(SLOW, monkeypatch, published=False)


def test_a_view_with_columns_in_clear_that_is_behind_says_that_the_keys_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("EE", monkeypatch, slow=0, known=0)
    with memory_vault() as keys:
        assert scene.look()["known"].problem == ""
        keys.is_away = True
        found = scene.look()
    assert (found["known"].standing, found["slow"].problem) == ("behind", "")
    assert "the keys of persons is unavailable: it is away" in found["known"].problem


def test_the_problem_of_a_stream_view_is_why_its_query_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scene, settings = Scene("", monkeypatch, gates=0), replace(SETTINGS, state=tmp_path)
    assert scene.look(settings)["gates"].problem == ""
    note_failure(settings, GATES.patch_tag(1), "KeyError: 'gate' (/shop/views.py:8)")
    found = scene.look(settings)["gates"]
    assert (found.standing, found.problem) == ("caught up", "its query failed: KeyError: 'gate' (/shop/views.py:8)")
