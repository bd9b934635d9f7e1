"""Rows of table views in Kafka: whatever happens, a reader of the topic has the rows of a replay."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from headwater import Postgres, Topic
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import BulkLoadFailed, GenerationMissing, LedgerWentBack, StoreUnavailable, Unloadable
from headwater.projections.generations.rebuild.catching_up import add_rows
from headwater.projections.reading.reader import fold, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import LAST_NUMBER, Batch, Target
from headwater.projections.stores.topic import partition as topic_partition
from headwater.projections.stores.topic.records import public_topic
from headwater.projections.stores.topic.store import TopicRows, TopicStore
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, History, history, load
from tests.contracts.counted_views import EDGES_PER_TOWN, MONEY_PER_TOWN, PER_TOWN
from tests.contracts.deciding import of_views
from tests.contracts.test_topic_store import Killed, killed_by_chance
from tests.contracts.test_view_stores import arrow
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.seeds import some_of
from tests.support.waiting import eventually

VIEWS = {
    view.name: replace(view, stores=(Postgres(), Topic()))
    for view in (BY_THING, BY_GROUP, PER_TOWN, MONEY_PER_TOWN, EDGES_PER_TOWN)
}
START = dict.fromkeys(range(PARTITIONS), 0)


def of_some_views(draw: int) -> pytest.MarkDecorator:
    """Two views, of which the first decides, other ones in each run and all in a long one: what becomes of their
    columns is tested with all.
    """
    names = some_of(list(VIEWS), 2, draw)
    return pytest.mark.parametrize("view", of_views((VIEWS[name] for name in names), names[:1]))


class Following:
    """A deployment with the topics of table views, and what a program that follows one knows."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = StoreSettings(settings.environment, patch_partitions=PARTITIONS, log=settings)
        self._stack = ExitStack()
        self.log = self._stack.enter_context(closing(KafkaLog(settings)))

    def open(self, **options: Any) -> TopicStore:
        return self._stack.enter_context(closing(TopicStore(self.settings, **options)))

    def created(self, view: TableView, generation: int = 1, *, published: bool = True) -> Target:
        target = Target(view, generation)
        with closing(TopicStore(self.settings)) as store:
            store.create(target, {}, START)
            store.finish(target)
            if published:
                store.publish(target)
        return target

    def records(self, view: TableView) -> list[tuple[str, dict[str, Any] | None]]:
        """Every record of the public topic, those of a key in their order."""
        topic, found = public_topic(view.name), []
        for number in range(PARTITIONS):
            eventually(partial(self._is_settled, topic, number))
            found += list(self.log.read(topic, number, 0))
        return [(record.key, None if record.value is None else dict(decode(record.value).data)) for record in found]

    def _is_settled(self, topic: str, partition: int) -> bool:
        return self.log.end(topic, partition) == self.log.stored_ends(topic)[partition]

    def rows(self, view: TableView) -> dict[str, dict[str, Any]]:
        """The rows that a reader has who begins at the start of the compacted topic."""
        return {key: row for key, row in dict(self.records(view)).items() if row is not None}

    def close(self) -> None:
        self._stack.close()
        names = [f"views.{view}{end}" for view in VIEWS for end in ("", ".g1", ".g2")]
        admin.remove_topics(self.settings.log, [topics.TopicSpec(name, 1) for name in ("published-views", *names)])


@pytest.fixture
def following(log_settings: LogSettings) -> Iterator[Following]:
    opened = Following(replace(log_settings, patch_partitions=PARTITIONS))
    for source in range(log_settings.partitions):  # places of a log that does not have them are not waited for
        stored = [opened.log.submit(Entry(EVENTS, f"filling/{number}", b"{}", 0), source) for number in range(400)]
        stored[-1].result(240)
    yield opened
    opened.close()


def told_of(view: TableView, seed: int) -> History:
    return history(view, list(view.plan.events.values()), seed)


@pytest.mark.parametrize("view", of_views(VIEWS.values(), (BY_GROUP.name, PER_TOWN.name)))
def test_random_histories_leave_the_rows_of_the_reference(following: Following, view: TableView) -> None:
    told, target = told_of(view, 1), following.created(view)
    load(following.open(), target, told, random.Random(1))
    assert following.rows(view) == fold(view, told.sources)
    records = len(following.records(view))
    assert not [key for key, _ in following.records(view) if key.startswith("\x1f")], "nobody sees contributions"
    again = following.open()
    for number in range(PARTITIONS):
        again.apply([target], {number: told.whole(number)})
    again.settle(now=True)
    assert len(following.records(view)) == records, "what was applied changes nothing"

    def reached() -> dict[int, int]:
        return {each: ledger.next_offset for each, ledger in again.ledgers(target).items()}

    eventually(lambda: reached() == told.ends, "the ledgers can be read")


@pytest.mark.soak
@of_some_views(41)
def test_a_kill_before_any_commit_loses_and_doubles_nothing(
    following: Following, view: TableView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_partition, "TRANSACTION_ROWS", 10)
    chance, told, target = random.Random(3), told_of(view, 3), following.created(view)
    killed = 0
    while True:
        try:
            load(following.open(fault=killed_by_chance(chance)), target, told, chance)
            break
        except (Killed, StoreUnavailable, LedgerWentBack):
            killed += 1
    assert killed
    assert following.rows(view) == fold(view, told.sources)


@pytest.mark.complete
@pytest.mark.soak
@of_some_views(42)
def test_another_generation_takes_the_topic_over_and_only_what_differs_is_written(
    following: Following, view: TableView
) -> None:
    told, one = told_of(view, 4), following.created(view)
    load(following.open(), one, told, random.Random(1))
    before = following.records(view)
    newer = replace(view, version=2)
    two = following.created(newer, 2, published=False)
    other = replace_tag(told, newer)
    load(following.open(), two, other, random.Random(2))
    assert following.records(view) == before, "it is not published"
    store = following.open()
    store.publish(two)
    finish(store, two, other)
    assert following.rows(view) == fold(view, told.sources)
    assert following.records(view) == before, "its rows are those of the one before, in the same partitions"


@pytest.mark.complete
def test_a_generation_that_lags_is_shown_when_it_has_all_that_was_shown(following: Following) -> None:
    view = VIEWS[BY_GROUP.name]
    told, one = told_of(view, 5), following.created(view)
    two = following.created(view, 2, published=False)
    load(following.open(), one, told, random.Random(1))
    shown = following.records(view)
    store = following.open()
    store.publish(two)
    for number in range(PARTITIONS):
        store.apply([two], {number: told.batch(number, 0, len(told.patches[number]) // 2)})
    assert following.records(view) == shown, "its rows are older"
    finish(store, two, told)
    assert following.rows(view) == fold(view, told.sources)


@pytest.mark.parametrize("view", of_views(VIEWS.values(), (EDGES_PER_TOWN.name,)))
def test_bulk_and_what_follows_give_the_same_rows(following: Following, view: TableView) -> None:
    told, target = told_of(view, 6), Target(view, 1)
    folded = states(view, told.sources)
    store = following.open()
    store.create(target, {}, START)
    assert store.ledgers(target) == {}, "it has no rows yet"
    with pytest.raises(GenerationMissing):
        store.apply([target], {0: Batch(0)})
    writer = store.bulk_writer(target)
    for _ in range(2):  # a task is repeated
        assert writer.write(iter([arrow(view, folded)])) == len(folded)
    with pytest.raises(BulkLoadFailed):
        store.finish(target, len(folded) + 1)
    store.finish(target, len(folded))
    store.publish(target)
    store.apply([target], {number: Batch(0) for number in range(PARTITIONS)})
    assert following.rows(view) == fold(view, told.sources)
    assert dict(TopicRows(following.settings).rows(target)).keys() == folded.keys()
    assert TopicRows(following.settings).rows_of(target, list(folded)[:3]).keys() == set(list(folded)[:3])


def test_a_patch_that_the_topic_cannot_hold_is_told_apart_and_the_others_go_on(following: Following) -> None:
    view = VIEWS[BY_THING.name]
    target, store = following.created(view), following.open()

    def batch(at: int, totals: Mapping[str, Any]) -> dict[int, Batch]:
        patches = [Patch(key, "0", Place(at + i, 0), {"total": each}) for i, (key, each) in enumerate(totals.items())]
        return {0: Batch(at + len(totals), {view.tag: patches})}

    store.apply([target], batch(0, {"a": 1}))
    for wrong in (2**70, "many"):
        with pytest.raises(Unloadable):
            store.apply([target], batch(1, {"a": 1, "b": wrong}))
    store.apply([target], batch(1, {"a": 1, "c": 3}))
    assert {key: row["total"] for key, row in following.rows(view).items()} == {"a": 2, "c": 3}


def test_rows_that_bulk_left_out_are_in_the_partitions_of_their_later_patches(following: Following) -> None:
    view, keys = VIEWS[BY_THING.name], "abcdefgh"
    one, store, letters = following.created(view), following.open(), Letters()
    patches = [Patch(key, "0", Place(at, 0), {"total": each}) for each in (1, 2) for at, key in enumerate(keys)]
    patches.insert(5, Patch("b", "0", Place(9, 0), {"total": 2**70}))
    assert add_rows(store, one, patches, cast("Any", letters), tag=view.tag, skip=True) == 1
    assert letters.added == 1

    def live(at: int) -> dict[int, Batch]:
        spread = {number: Batch(at, {view.tag: []}) for number in range(PARTITIONS)}
        for key in keys:
            place = patch_partition(view, view.tag, key, PARTITIONS)
            spread[place].patches[view.tag].append(Patch(key, "0", Place(10 + at, ord(key)), {"total": 10}))
        for batch in spread.values():
            batch.progress[view.tag] = {"0": 10 + at}
        return spread

    store.apply([one], live(1))
    assert {key: row["total"] for key, row in following.rows(view).items()} == dict.fromkeys(keys, 13)
    two = following.created(view, 2)
    store.apply([two], live(1))
    assert {key: row["total"] for key, row in following.rows(view).items()} == dict.fromkeys(keys, 10)


class Letters:
    """Counts dead letters."""

    added = 0

    def add(self, *_: object) -> None:
        self.added += 1


def replace_tag(told: History, view: TableView) -> History:
    """The same patches for another version of their view, which must be in the same partitions."""
    found = history(view, list(view.plan.events.values()), 4)
    assert {k: [e.patch for e in v] for k, v in found.patches.items()} == {
        k: [e.patch for e in v] for k, v in told.patches.items()
    }
    return found


def finish(store: TopicStore, target: Target, told: History) -> None:
    """Load to the end, with the progress that a heartbeat brings."""
    ends: Mapping[str, int] = {}
    for records in told.patches.values():
        for record in records:
            if record.patch is not None:
                ends = {**ends, record.patch.source: max(ends.get(record.patch.source, 0), record.patch.place.offset)}
    for partition in range(PARTITIONS):
        batch = told.whole(partition)
        batch.progress[target.tag] = dict(ends)
        store.apply([target], {partition: batch})
    store.settle(now=True)

    def has_all() -> bool:
        ledgers = store.ledgers(target).values()
        return bool(ledgers) and all(
            ledger.has(s, Place(o, LAST_NUMBER)) for ledger in ledgers for s, o in ends.items()
        )

    eventually(has_all, "the ledgers can be read")
