"""Rows of stream views in Kafka: a topic per generation, and one for the programs that follow the view."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
import pytest

from headwater import INTEGER, TEXT, Postgres, Topic
from headwater.eventlog import topics
from headwater.eventlog.envelope import decode
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.limits import MAX_ENTRY_BYTES
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Record
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import GenerationMissing, LedgerWentBack, StoreUnavailable, TakenOver, Unloadable
from headwater.projections.loading.decoding import read_into
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Batch, Target
from headwater.projections.stores.topic import partition as topic_partition
from headwater.projections.stores.topic.records import generation_topic, public_topic
from headwater.projections.stores.topic.store import TopicRows, TopicStore, read_ledgers
from headwater.projections.stream.view import BATCH
from headwater.projections.table.layout import DELETED
from tests.support.observed import gate_view
from tests.support.seeds import examples
from tests.support.waiting import eventually

VIEW = gate_view(
    key="gate", columns={"gate": TEXT, "number": INTEGER}, stores=(Postgres(), Topic()), deleted_by="closed"
)
ONE, TWO = Target(VIEW, 1), Target(VIEW, 2)
PARTITION = 0


class Killed(Exception):
    """The process ends here."""


class Row(NamedTuple):
    """A row that a batch computed; number None: deleted."""

    gate: str
    batch: int
    number: int | None


class Following:
    """A deployment with a view's topic, and what a program that follows it knows."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = StoreSettings(settings.environment, patch_partitions=settings.patch_partitions, log=settings)
        self._stack = ExitStack()
        self.log = self._stack.enter_context(closing(KafkaLog(settings)))

    def open(self, **options: Any) -> TopicStore:
        return self._stack.enter_context(closing(TopicStore(self.settings, **options)))

    def created(self, target: Target, *, published: bool = True) -> Target:
        with closing(TopicStore(self.settings)) as store:
            store.create(target, {}, {PARTITION: 0})
            if published:
                store.publish(target)
        return target

    def records(self) -> list[tuple[str, int | None]]:
        """Every record of the public topic: its key, and the number in its row (None: a tombstone)."""
        return [
            (record.key, None if record.value is None else decode(record.value).data["number"])
            for record in self.read(public_topic(VIEW.name))
        ]

    def read(self, topic: str) -> list[Record]:
        """All records of a topic, once the last transaction is visible."""
        eventually(lambda: self.log.end(topic, PARTITION) == self.log.stored_ends(topic)[PARTITION])
        return list(self.log.read(topic, PARTITION, 0))

    def rows(self) -> dict[str, int]:
        """The rows, as the last record of each key has them."""
        return {key: number for key, number in dict(self.records()).items() if number is not None}

    def stored(self, target: Target) -> dict[str, int]:
        """The rows of a generation."""
        self.read(generation_topic(target))
        return {k: row["number"] for k, row in TopicRows(self.settings).rows(target) if not row.get(DELETED)}

    def close(self) -> None:
        self._stack.close()
        admin.remove_topics(
            self.settings.log,
            [
                topics.TopicSpec(name, 1)
                for name in ("published-views", *(f"views.gates{end}" for end in ("", ".g1", ".g2")))
            ],
        )


@pytest.fixture
def following(log_settings: LogSettings) -> Iterator[Following]:
    opened = Following(replace(log_settings, patch_partitions=1))
    yield opened
    opened.close()


def batch_of(target: Target, start: int, rows: Sequence[Row]) -> Batch:
    """Records of `patches` from the offset `start` on, one per row."""
    batch = Batch(start, first_offset=start)
    for row in rows:
        fields = {BATCH: row.batch, "number": row.number} | ({DELETED: True} if row.number is None else {})
        value = {"b": row.batch, "t": 0, "c": fields}
        read_into(batch, patch_key(target.tag, row.gate).encode(), orjson.dumps(value))
        batch.next_offset += 1
    return batch


def take(store: TopicStore, target: Target, start: int, *rows: Row) -> None:
    store.apply([target], {PARTITION: batch_of(target, start, rows)})


def test_a_record_is_a_cloud_event_with_the_row_and_a_tombstone_deletes_it(following: Following) -> None:
    target, store = following.created(ONE), following.open()
    take(store, target, 0, Row("a", 0, 1), Row("b/ü", 0, 2))
    take(store, target, 2, Row("a", 1, None))
    assert following.records() == [("a", 1), ("b/ü", 2), ("a", None)]
    event = decode(following.read(public_topic(VIEW.name))[0].value)
    assert event.data == {"gate": "a", "number": 1}
    assert (event.id, event.type, event.stream) == ("gates@1.g1/a@0", "views.gates", "a")
    assert (event.source, event.data_version) == ("/headwater/views/gates", 1)
    assert following.stored(target) == {"b/ü": 2}
    assert TopicRows(following.settings).rows_of(target, ["b/ü", "c"]) == {"b/ü": {BATCH: 0, "number": 2}}


def test_another_generation_changes_only_the_rows_that_differ(following: Following) -> None:
    store = following.open()
    take(store, following.created(ONE), 0, *(Row(gate, 0, 1) for gate in "abc"))
    take(store, following.created(TWO, published=False), 0, Row("a", 0, 1), Row("b", 0, 5), Row("d", 0, 7))
    assert following.rows() == {"a": 1, "b": 1, "c": 1}
    store.publish(TWO)
    again = following.open()
    take(again, TWO, 3, Row("d", 1, 8))
    assert following.records()[3:] == [("b", 5), ("d", 7), ("c", None), ("d", 8)]
    # and back: the first one is as it was when it was last live
    again.publish(ONE)
    take(following.open(), ONE, 3)
    assert following.rows() == {"a": 1, "b": 1, "c": 1}
    assert following.stored(TWO) == {"a": 1, "b": 5, "d": 8}


def test_a_row_never_goes_back_if_batches_are_read_again(following: Following) -> None:
    target, store = following.created(ONE), following.open()
    rows = [Row("a", 0, 1), Row("a", 1, 2), Row("b", 1, 1)]
    take(store, target, 0, *rows)
    again = following.open()
    take(again, target, 0, *rows)
    assert [number for key, number in following.records() if key == "a"] == [2, 2]
    with pytest.raises(LedgerWentBack):
        take(again, target, 4, Row("b", 2, 3))


def test_of_two_loaders_one_writes(following: Following) -> None:
    target, slow, fast = following.created(ONE), following.open(), following.open()
    take(slow, target, 0, Row("a", 0, 1))
    take(fast, target, 1, Row("a", 1, 2))
    with pytest.raises(TakenOver, match=r"^Kafka: partition 0 has another owner"):  # it is not unavailable
        take(slow, target, 1, Row("a", 0, 1))
    take(slow, target, 1, Row("a", 0, 1))  # it takes the partition back, and knows what the other one did
    assert following.records() == [("a", 1), ("a", 2)]


def test_a_loader_of_the_replaced_generation_no_longer_writes_to_the_public_topic(following: Following) -> None:
    slow, store = following.open(), following.open()
    take(slow, following.created(ONE), 0, Row("a", 0, 1))
    slow._publications._looked = float("inf")  # it has not seen the other publication yet
    take(store, following.created(TWO), 0, Row("a", 0, 3))
    with pytest.raises(StoreUnavailable):
        take(slow, ONE, 1, Row("a", 1, 2))
    take(slow, ONE, 1, Row("a", 1, 2))
    assert following.rows() == {"a": 3}
    assert following.stored(ONE) == {"a": 2}


def test_a_generation_that_is_published_while_its_partition_is_taken_over_shows_its_rows(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, store = following.created(ONE, published=False), following.open()
    own = store._log.own

    def publish_meanwhile(*place: Any) -> Any:
        monkeypatch.undo()
        with closing(TopicStore(following.settings)) as rebuild:
            rebuild.publish(target)
        return own(*place)

    monkeypatch.setattr(store._log, "own", publish_meanwhile)
    take(store, target, 0, Row("a", 0, 1))
    assert following.records() == [("a", 1)]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(examples(1)))
def test_random_batches_crashes_and_publications_leave_the_rows_of_the_generation(
    following: Following, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(topic_partition, "TRANSACTION_ROWS", 3)
    chance = random.Random(seed)
    generations, told = (ONE, TWO), [_history(chance), _history(chance)]
    for target in generations:
        following.created(target, published=target is ONE)
    positions, shown = [0, 0], 0
    opened = [following.open(), following.open(fault=killed_by_chance(chance))]
    while unfinished := [number for number in (0, 1) if positions[number] < len(told[number])]:
        number, store = chance.choice(unfinished), chance.choice(opened)
        end = min(len(told[number]), positions[number] + chance.randrange(1, 8))
        start = max(0, positions[number] - chance.randrange(4))
        try:
            take(store, generations[number], start, *told[number][start:end])
        except (Killed, StoreUnavailable):
            continue
        except LedgerWentBack:  # another store had not written it yet: a loader reads again from there
            positions[number] = store.ledgers(generations[number])[PARTITION].next_offset
            continue
        positions[number] = end
        if chance.random() < 0.2:
            shown = chance.randrange(2)
            store.publish(generations[shown])
    take(following.open(), generations[shown], len(told[shown]), Row("z", 99, 99))
    for number, rows in enumerate(told):
        final = {row.gate: row.number for row in rows} | ({"z": 99} if number == shown else {})
        kept = {gate: count for gate, count in final.items() if count is not None}
        assert following.stored(generations[number]) == kept
        if number == shown:
            assert following.rows() == kept


def test_a_row_that_is_too_large_is_refused_and_the_others_are_taken(following: Following) -> None:
    view = gate_view(key="gate", columns={"gate": TEXT, "number": TEXT}, stores=(Postgres(), Topic()))
    target, store = following.created(Target(view, 1)), following.open()
    large: Any = "x" * MAX_ENTRY_BYTES
    less: Any = "x" * (MAX_ENTRY_BYTES - 1_000_000)
    with pytest.raises(Unloadable):
        take(store, target, 0, Row("a", 0, 1), Row("b", 0, large))
    with pytest.raises(Unloadable, match="a record of the row has"):  # the key counts, in bytes
        take(store, target, 0, Row("é" * 600_000, 0, less))
    take(store, target, 0, Row("a", 0, 1))
    assert following.records() == [("a", 1)]


def test_a_dropped_generation_is_gone_and_with_the_published_one_its_topic(following: Following) -> None:
    store = following.open()
    take(store, following.created(ONE), 0, Row("a", 0, 1))
    take(store, following.created(TWO, published=False), 0, Row("a", 0, 1))
    store.drop(TWO)
    eventually(lambda: store.ledgers(TWO) == {})  # a broker hears of it a moment after Kafka's controller
    with pytest.raises(GenerationMissing):
        take(store, TWO, 1, Row("a", 1, 1))
    assert following.rows() == {"a": 1}
    store.drop(ONE)
    eventually(lambda: not following.log.stored_ends(public_topic(VIEW.name)))
    eventually(lambda: store.ledgers(ONE) == {})
    with pytest.raises(GenerationMissing):
        list(TopicRows(following.settings).rows(ONE))


def test_a_ledger_without_rows_is_written_when_the_loader_is_idle(following: Following) -> None:
    target, store = following.created(ONE), following.open()
    progress = Batch(5, progress={target.tag: {"observations/0": 41}}, first_offset=0)
    store.apply([target], {PARTITION: progress})
    store._owned[target.view.name, 1, PARTITION]._noted_at -= 60.0
    store.settle()
    following.read(generation_topic(target))  # readers see what was committed a moment later
    (ledger,) = (store.ledgers(target)[each] for each in (PARTITION,))
    assert (ledger.next_offset, ledger.reached("observations/0")) == (5, 42)


def test_a_ledger_that_was_written_a_moment_ago_is_written_again_if_another_store_continues(
    following: Following,
) -> None:
    target, store = following.created(ONE), following.open()
    take(store, target, 0, Row("a", 0, 1))
    store.apply([target], {PARTITION: Batch(5, progress={target.tag: {"observations/0": 41}})})
    store._owned[target.view.name, 1, PARTITION]._noted_at += 60.0
    store.settle()
    assert following.open().ledgers(target)[PARTITION].next_offset < 5
    store.settle(now=True)
    following.read(generation_topic(target))
    assert following.open().ledgers(target)[PARTITION].next_offset == 5


def test_a_partition_is_kept_while_others_get_rows(log_settings: LogSettings) -> None:
    opened = Following(replace(log_settings, patch_partitions=2))
    store = opened.open()
    store.create(ONE, {}, {0: 0, 1: 0})
    store.apply([ONE], {0: batch_of(ONE, 0, [Row("a", 0, 1)])})
    owned = store._owned[VIEW.name, 1, 0]
    store.apply([ONE], {1: batch_of(ONE, 0, [Row("b", 0, 1)])})
    store.apply([ONE], {0: batch_of(ONE, 1, [Row("a", 1, 2)])})
    assert store._owned[VIEW.name, 1, 0] is owned
    store.apply([], {0: Batch(3, first_offset=2)})
    assert not store._owned
    opened.close()


def _history(chance: random.Random) -> list[Row]:
    """Rows in the order of their batches; some batches come twice, as after a restart of their query."""
    rows: list[Row] = []
    for batch in range(chance.randrange(4, 9)):
        made = [Row(gate, batch, chance.choice([None, batch, batch + 10])) for gate in chance.sample("abcdef", 3)]
        rows += [*made[:2], *made] if chance.random() < 0.3 else made
    return rows


def killed_by_chance(chance: random.Random) -> Any:
    def fault(_: str) -> None:
        if chance.random() < 0.3:
            raise Killed

    return fault


def test_a_generation_whose_topic_goes_while_it_is_read_has_no_ledgers() -> None:
    class GoingLog(MemoryLog):
        found: Mapping[int, int] = {0: 1}

        def stored_ends(self, topic: str) -> Mapping[int, int]:
            return self.found

        def last(self, topic: str, partition: int, key: str) -> bytes | None:
            self.found = after
            raise LogUnavailable(f'reading "{topic}"', "nothing came for 10 s")

    after: Mapping[int, int] = {}
    assert read_ledgers(GoingLog(), ONE) == {}
    after = {0: 1}
    with pytest.raises(LogUnavailable):
        read_ledgers(GoingLog(), ONE)
