"""Where the live query begins: no store or view that is away, paused or lost holds it up, and no patch is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections import live_start
from headwater.projections.errors import StoreUnavailable
from headwater.projections.live_start import FIRST_WINDOW, first_unsent, starting_offsets
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import open as store_open
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target, ViewStore
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.unit.projections.test_service_start import Away, FakeRegistry, generation

ENDS = {"0": 100, "1": 80}
BASE = {"0": 20, "1": 30}


class Deployment:
    """Two views, a log with events, and stores in memory, by name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **of_things: Any) -> None:
        self.log, self.stores = MemoryLog(partitions=2), dict[str, ViewStore]()
        for source, end in ENDS.items():
            for at in range(end):
                self.add(EVENTS, int(source), f"event/{at}", {})
        settings = LogSettings(state=folder, partitions=2, patch_partitions=2)
        self.service = Service(settings, StoreSettings(), ViewRegistry([("here", BY_GROUP), ("here", BY_THING)]))
        topics = {EVENTS: self.log.incarnation(EVENTS)}
        begun: dict[str, Any] = {"bulk_ends": BASE, "patch_starts": {"0": 0, "1": 0}, "topics": topics}
        live = [
            replace(generation(1, 1, of=BY_GROUP), **begun),
            replace(generation(1, 1, of=BY_THING), **{**begun, **of_things}),
        ]
        monkeypatch.setattr(Service, "generations", FakeRegistry(live))
        monkeypatch.setattr(store_open, "open_store", lambda name, _: self.stores[name])
        for name in ("postgres", "elasticsearch", "valkey"):
            self.stores[name] = MemoryStore(Memory())
            for view in (BY_GROUP, BY_THING):
                self.stores[name].create(Target(view, 1), BASE, {0: 0, 1: 0})

    def add(self, topic: str, partition: int, key: str, value: Mapping[str, Any]) -> None:
        self.log.submit(Entry(topic, key, orjson.dumps(value), 1), partition).result()

    def progress(self, source: int, offset: int, *tags: str, partitions: tuple[int, ...] = (0, 1)) -> None:
        for partition in partitions:
            self.add(PATCHES, partition, f"progress/{source}", {"p": source, "o": offset, "t": 1, "v": tags})

    def begins(self) -> dict[str, int]:
        return first_unsent(self.service, self.log)


TAGS = (BY_GROUP.tag, BY_THING.tag)


def test_it_begins_after_the_events_whose_patches_were_sent_though_no_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Deployment(tmp_path, monkeypatch)
    made.stores = dict.fromkeys(made.stores, Away(Memory()))
    assert made.begins() == BASE, "nothing was sent: bulk has these"
    made.progress(0, 90, *TAGS)
    made.progress(1, 60, *TAGS)
    made.progress(1, 70, BY_THING.tag)
    made.progress(1, 75, *TAGS, partitions=(0,))
    assert made.begins() == {"0": 91, "1": 61}, "every partition has them of every view"
    for _ in range(2 * FIRST_WINDOW):
        made.add(PATCHES, 0, f"{BY_GROUP.tag}/a", {"p": 0, "o": 95, "i": 0, "t": 1, "c": {}})
    assert made.begins() == {"0": 91, "1": 61}


def test_without_progress_the_stores_are_asked_that_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Deployment(tmp_path, monkeypatch)
    for view in (BY_GROUP, BY_THING):
        made.stores["postgres"].create(Target(view, 1), {"0": 50, "1": 40}, {0: 0, 1: 0})
        made.stores["elasticsearch"].create(Target(view, 1), {"0": 60, "1": 35}, {0: 0, 1: 0})
    made.stores["valkey"] = Away(Memory())
    assert made.begins() == {"0": 50, "1": 35}


def test_a_paused_view_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patches wait in `patches`; its ledgers stay where they were."""
    made = Deployment(tmp_path, monkeypatch)
    made.progress(0, 90, *TAGS)
    made.progress(1, 70, *TAGS)
    assert made.begins() == {"0": 91, "1": 71}


@pytest.mark.parametrize("of_things", [{"topics": {EVENTS: "another topic"}}, {"patch_starts": {"0": 9, "1": 9}}])
def test_a_view_that_only_a_replay_helps_holds_up_no_other(
    of_things: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Deployment(tmp_path, monkeypatch, **of_things)
    for store in made.stores.values():
        store.drop(Target(BY_THING, 1))
    for source, offset in ((0, 90), (1, 70)):
        made.progress(source, offset, *TAGS)
    assert made.begins() == {"0": 91, "1": 71}


def test_progress_from_before_a_generation_was_begun_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Deployment(tmp_path, monkeypatch, patch_starts={"0": 2, "1": 2})
    for source, offset in ((0, 90), (1, 70)):
        made.progress(source, offset, *TAGS)
    assert made.begins() == BASE


def test_it_begins_at_the_end_of_a_topic_that_is_shorter_than_what_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has lost records: Spark would fail, and with it every view."""
    made = Deployment(tmp_path, monkeypatch)
    for source, offset in ((0, 900), (1, 70)):
        made.progress(source, offset, *TAGS)
    assert made.begins() == {"0": 100, "1": 71}


def test_while_the_registry_is_away_it_goes_on_from_its_checkpoint_or_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, checkpoint = Deployment(tmp_path, monkeypatch), tmp_path / "live" / "digest"
    monkeypatch.setattr(live_start, "KafkaLog", lambda _: made.log)
    registry = made.service.generations

    def away(_: Service) -> Any:
        raise StoreUnavailable("PostgreSQL", "gone")

    monkeypatch.setattr(Service, "generations", property(away))
    with pytest.raises(StoreUnavailable):
        starting_offsets(made.service, checkpoint)
    monkeypatch.setattr(Service, "generations", registry)
    checkpoint.mkdir(parents=True)
    assert starting_offsets(made.service, checkpoint) == BASE
    assert not checkpoint.exists()
    monkeypatch.setattr(Service, "generations", property(away))
    assert starting_offsets(made.service, checkpoint) == BASE
    checkpoint.mkdir()
    assert starting_offsets(made.service, checkpoint) == BASE
    assert checkpoint.exists()


def test_for_a_view_that_is_new_no_old_patches_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Deployment(tmp_path, monkeypatch, patch_starts={"0": 2_000, "1": 2_000})
    for number in range(4_000):
        made.add(PATCHES, number % 2, f"{BY_GROUP.tag}/a", {"p": 0, "o": number, "i": 0, "t": 1, "c": {}})
    for source, offset in ((0, 90), (1, 70)):
        made.progress(source, offset, BY_GROUP.tag)
    starts, read = list[int](), MemoryLog.read

    def noted(log: MemoryLog, topic: str, partition: int, start: int, end: int | None = None) -> Any:
        starts.append(start if topic == PATCHES else 2_000)
        return read(log, topic, partition, start, end)

    monkeypatch.setattr(MemoryLog, "read", noted)
    assert made.begins() == BASE, "it lacks what came after its bulk"
    assert min(starts) > 1_900
