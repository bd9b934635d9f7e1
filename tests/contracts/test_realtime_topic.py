"""Rows of real-time views in Kafka: read again, in other batches, by several loaders, and of generations that lag."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson
import pytest

from headwater import INTEGER, TEXT, Postgres, Topic
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import LedgerWentBack, StoreUnavailable
from headwater.projections.loading.decoding import read_into
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import LAST_NUMBER, Batch, Target
from headwater.projections.stores.topic import partition as topic_partition
from headwater.projections.stores.topic.records import generation_topic
from headwater.projections.stores.topic.store import TopicStore
from headwater.projections.stream.view import BATCH
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import WHOLE, Place
from tests.contracts.test_topic_store import PARTITION, Following, Killed, killed_by_chance
from tests.support.carts import boxes, cart_view, is_in_order
from tests.support.seeds import examples
from tests.support.waiting import eventually

VIEW = cart_view(
    name="gates",
    key="id",
    columns={"id": TEXT, "number": INTEGER},
    query=boxes,
    stores=(Postgres(), Topic()),
    deleted_by="closed",
)
ONE, TWO = Target(VIEW, 1), Target(VIEW, 2)
GATES = ("abc", "de")
"""By source partition."""
OFFSETS = 6
"""Of each."""


class Row(NamedTuple):
    """A row that a record gave; number None: deleted. Without a gate, it is progress."""

    source: int
    offset: int
    gate: str = ""
    number: int | None = None


@pytest.fixture
def following(log_settings: LogSettings) -> Iterator[Following]:
    opened = Following(replace(log_settings, patch_partitions=1))
    yield opened
    opened.close()


def batch_of(start: int, rows: Sequence[Row]) -> Batch:
    """Records of `patches` from the offset `start` on, one per row."""
    batch = Batch(start, first_offset=start)
    for row in rows:
        place = {"p": row.source, "o": row.offset, "t": 0}
        fields = {BATCH: row.offset, "number": row.number} | ({DELETED: True} if row.number is None else {})
        key = patch_key(VIEW.tag, row.gate) if row.gate else f"progress/{row.source}"
        value = place | ({"i": WHOLE, "c": fields} if row.gate else {"v": [VIEW.tag]})
        read_into(batch, key.encode(), orjson.dumps(value))
        batch.next_offset += 1
    return batch


def take(store: TopicStore, target: Target, start: int, *rows: Row) -> None:
    store.apply([target], {PARTITION: batch_of(start, rows)})


def test_rows_of_a_record_that_is_read_again_are_written_again_and_earlier_ones_are_not(following: Following) -> None:
    target, store = following.created(ONE), following.open()
    take(store, target, 0, Row(0, 1, "a", 1), Row(0, 2, "a", 2), Row(0, 2, "b", 2))
    again = following.open()
    repeated = [Row(0, 1, "a", 1), Row(0, 2, "a", 2), Row(0, 2, "b", 2)]
    take(again, target, 3, *repeated, Row(0, 2, "c", 2), Row(1, 1, "d", 1))
    assert following.records() == [("a", 2), ("b", 2), ("a", 2), ("b", 2), ("c", 2), ("d", 1)]
    take(again, target, 8, Row(0, 2), Row(0, 2, "a", 2), Row(0, 3, "a", None))
    assert following.records()[6:] == [("a", None)]
    following.read(generation_topic(target))
    (ledger,) = again.ledgers(target).values()
    assert ledger.applied == {"0": Place(3, WHOLE), "1": Place(1, WHOLE)}
    expected = (13, {"0": Place(3, LAST_NUMBER), "1": Place(9, LAST_NUMBER)})

    def is_settled() -> bool:  # if Kafka is late, the store gives the partition up, and is given the records again
        take(again, target, 11, Row(0, 3), Row(1, 9))
        again.settle(now=True)
        (ledger,) = again.ledgers(target).values()
        return (ledger.next_offset, ledger.applied) == expected

    eventually(is_settled, "the ledger is at the end")


def test_a_crash_between_two_transactions_of_a_batch_brings_back_no_earlier_row(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_partition, "TRANSACTION_ROWS", 2)
    written = []

    def second(_: str) -> None:
        written.append(1)
        if len(written) == 3:  # the first one says that the generation is shown
            raise Killed

    target = following.created(ONE)
    rows = [Row(0, 1, "a", 1), Row(0, 2, "a", 2), Row(0, 3, "b", 3), Row(0, 4, "a", 4)]
    with pytest.raises(Killed):
        take(following.open(fault=second), target, 0, *rows)
    again = following.open()
    take(again, target, 0, rows[0])
    take(again, target, 1, *rows[1:])
    assert [number for key, number in following.records() if key == "a"] == [2, 2, 4]


def test_a_generation_that_lags_is_shown_when_it_has_all_that_the_one_before_has_shown(following: Following) -> None:
    store = following.open()
    fill(following.log)
    rows = [Row(0, 1, "a", 1), Row(0, 2, "a", 2), Row(0, 2, "b", 2), Row(0, 3, "b", None), Row(0, 4, "c", 4)]
    take(store, following.created(ONE), 0, *rows)
    shown = following.records()
    other = following.created(TWO, published=False)
    take(store, other, 0, *rows[:2])
    store.publish(TWO)
    again = following.open()
    take(again, TWO, 2, rows[2])
    assert following.records() == shown, "its rows would be older, and the row that was deleted would be back"
    take(again, TWO, 3, *rows[3:])
    assert following.records() == shown, "that record may have more rows"
    take(again, TWO, 5, Row(0, 5, "a", None))
    assert following.records() == [*shown, ("a", None)]
    again.publish(ONE)
    back = following.open()
    take(back, ONE, 5, Row(0, 5, "a", None), Row(0, 6, "d", 6))
    assert following.records() == [*shown, ("a", None), ("d", 6)]


def test_places_that_a_log_does_not_have_any_more_are_not_waited_for(following: Following) -> None:
    store = following.open()
    take(store, following.created(ONE), 0, Row(0, 70, "a", 70))
    take(store, following.created(TWO, published=False), 0, Row(0, 0, "a", 5))
    store.publish(TWO)
    take(following.open(), TWO, 1, Row(0, 1, "b", 6))
    assert following.rows() == {"a": 5, "b": 6}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(examples(1)))
def test_no_row_goes_back_whatever_is_read_again_killed_and_published(
    following: Following, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(topic_partition, "TRANSACTION_ROWS", 3)
    chance = random.Random(seed)
    versions, patches = history(chance)
    fill(following.log)
    for target in (ONE, TWO):
        following.created(target, published=target is ONE)
    positions, shown = {ONE.generation: 0, TWO.generation: 0}, ONE
    opened = [following.open(), following.open(fault=killed_by_chance(chance))]
    while unfinished := [generation for generation in (ONE, TWO) if positions[generation.generation] < len(patches)]:
        target, store = chance.choice(unfinished), chance.choice(opened)
        position = positions[target.generation]
        start, end = max(0, position - chance.randrange(4)), min(len(patches), position + chance.randrange(1, 8))
        try:
            take(store, target, start, *patches[start:end])
        except (Killed, StoreUnavailable):
            continue
        except LedgerWentBack:  # another store had not written it yet: a loader reads again from there
            positions[target.generation] = store.ledgers(target)[PARTITION].next_offset
            continue
        positions[target.generation] = end
        if chance.random() < 0.2:
            shown = chance.choice((ONE, TWO))
            store.publish(shown)
    last = following.open()
    for target in (ONE, TWO):  # a ledger without rows is written late, so the end may be read again
        start = last.ledgers(target)[PARTITION].next_offset
        take(last, target, start, *patches[start:])
    final = {gate: numbers[-1] for gate, numbers in versions.items() if numbers[-1] is not None}
    assert following.stored(ONE) == following.stored(TWO) == following.rows() == final
    for gate, numbers in versions.items():
        assert is_in_order([number for key, number in following.records() if key == gate], numbers), gate


def history(chance: random.Random) -> tuple[Mapping[str, Sequence[int | None]], list[Row]]:
    """The versions of each row, and what a query sends that is killed now and then and begins earlier again."""
    versions: dict[str, list[int | None]] = {}
    records: list[list[list[Row]]] = []
    for source, gates in enumerate(GATES):
        records.append([])
        for offset in range(OFFSETS):
            rows = []
            for gate in chance.sample(gates, chance.randrange(1, len(gates) + 1)):
                number = None if chance.random() < 0.2 else offset
                versions.setdefault(gate, []).append(number)
                rows.append(Row(source, offset, gate, number))
            records[source].append(rows if chance.random() < 0.8 else [*rows, Row(source, offset)])
    sent, at = list[Row](), [0, 0]
    while unfinished := [each for each in (0, 1) if at[each] < len(records[each])]:
        source = chance.choice(unfinished)
        rows = records[source][at[source]]
        is_killed = chance.random() < 0.2
        sent += rows[: chance.randrange(len(rows) + 1)] if is_killed else rows
        at[source] += 1
        if is_killed:
            at[source] -= 1
            at = [max(0, each - chance.randrange(3)) for each in at]
    sent += [Row(source, len(found) - 1) for source, found in enumerate(records)]
    return versions, sent


def fill(log: KafkaLog) -> None:
    """Let the sources end behind the offsets of these tests."""
    for source in range(len(GATES)):
        for number in range(20):
            log.submit(Entry(EVENTS, f"filling/{number}", b"{}", 0), source).result(240)
