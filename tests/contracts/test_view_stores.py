"""The contract of the ViewStore port: on memory and on every real store, whatever happens, the rows of a replay."""

from __future__ import annotations

import pickle
import random
import threading
import tracemalloc
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count as count_from
from typing import Any

import pyarrow as pa
import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.ports import free_port
from headwater.eventlog.source_positions import source_id
from headwater.projections.errors import GenerationMissing, LedgerWentBack, StoreUnavailable, Unloadable
from headwater.projections.reading.reader import fold, states
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import writer
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import add, collect, count
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import ZERO, State, StateField
from headwater.projections.table.patch import CHANGED, GROUP, Patch, Place, contribution_key, own
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, History, history, load
from headwater.projections.view import View
from headwater.projections.views import streams
from headwater.samples.listings.views import city_market
from tests.contracts.counted_views import COUNTED_VIEWS, EDGES_PER_TOWN, MONEY_PER_TOWN, PER_TOWN, Shop
from tests.contracts.deciding import of_stores, of_views, seeds
from tests.contracts.fold_views import BY_SKU, FOLD_VIEWS, ITEMS_AND_MOVES, LISTS_BY_GROUP, LISTS_BY_THING, STORES
from tests.contracts.opened_stores import OnElasticsearch, OnMemory, OnPostgres, OnValkey, RealServer, Server
from tests.contracts.view_histories import BY_GROUP, BY_THING, Put, Removed, Restored
from tests.support.domains import COVERED
from tests.support.seeds import examples
from tests.support.table_views import table_views

REGISTERED = table_views(COVERED)
VIEWS = {**REGISTERED, BY_THING.name: BY_THING, BY_GROUP.name: BY_GROUP, **FOLD_VIEWS, **COUNTED_VIEWS}
del VIEWS[ITEMS_AND_MOVES.name]  # its rows are stored like those of BY_SKU
SERVERS: dict[str, Callable[[StoreSettings], RealServer]] = {
    "postgres": OnPostgres,
    "elasticsearch": OnElasticsearch,
    "valkey": OnValkey,
}
MOMENTS = {
    "memory": ("rows written", "ledger written"),
    "postgres": ("rows read", "rows written", "ledger written", "committed"),
    "elasticsearch": ("rows read", "rows written", "ledger written"),
    "valkey": ("rows read", "rows written", "ledger written"),
}
START = dict.fromkeys(range(PARTITIONS), 0)
CAPTURED = "cdc.shop.public.customers/1"


class Crash(Exception):
    """The process ends here; what it held in memory is gone."""


def crashed_at(server: Server, target: Target, told: History, chance: random.Random) -> set[str]:
    """Load to the end, crash after crash; returns the moments of the crashes."""
    crashed: set[str] = set()

    def fault(moment: str) -> None:
        # each moment once for certain, then at random
        if moment not in crashed or chance.random() < 0.15:
            crashed.add(moment)
            raise Crash(moment)

    while True:
        try:
            load(server.open(fault), target, told, chance)
            break
        except Crash:
            continue
    return crashed


@pytest.fixture(params=list(MOMENTS))
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(store_name: str, request: pytest.FixtureRequest) -> Iterator[Server]:
    if store_name == "memory":
        with OnMemory() as memory:
            yield memory
        return
    endpoints = request.getfixturevalue("stack").endpoints
    settings = StoreSettings(
        f"t_{uuid.uuid4().hex[:12]}", endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, PARTITIONS
    )
    with SERVERS[store_name](settings) as opened:
        yield opened


def events_of(view: TableView) -> list[type[Event]]:
    if view.plan.handles_every:
        return list(CommandRegistry.load(COVERED).events.values())
    return list(view.plan.events.values())


def created(server: Server, view: View, base: Mapping[str, int] | None = None, generation: int = 1) -> Target:
    target, store = Target(view, generation), server.open()
    store.create(target, base or {}, START)
    store.finish(target)
    store.publish(target)
    return target


@pytest.mark.parametrize(("store_name", "view"), of_stores(MOMENTS, VIEWS.values(), ("memory", "postgres")))
def test_random_histories_leave_the_rows_of_the_reference(server: Server, view: TableView) -> None:
    told, target = history(view, events_of(view), 1), created(server, view)
    load(server.open(), target, told, random.Random(1))
    assert server.rows(view) == fold(view, told.sources)
    # and a loader that starts over from the beginning of `patches` changes nothing
    again = server.open()
    for number in range(PARTITIONS):
        again.apply([target], {number: told.batch(number, 0, len(told.patches[number]))})
    assert server.rows(view) == fold(view, told.sources)
    assert {each: ledger.next_offset for each, ledger in again.ledgers(target).items()} == told.ends


SUMS = (BY_GROUP, PER_TOWN, MONEY_PER_TOWN, EDGES_PER_TOWN)
of_sums = pytest.mark.parametrize("view", of_views(SUMS, (BY_GROUP.name, PER_TOWN.name)))


@of_sums
@pytest.mark.parametrize("seed", seeds(3))
def test_a_crash_between_any_two_writes_loses_and_doubles_nothing(
    server: Server, store_name: str, seed: int, view: TableView
) -> None:
    chance = random.Random(seed)
    told, target = history(view, events_of(view), seed), created(server, view)
    assert crashed_at(server, target, told, chance) == set(MOMENTS[store_name])
    assert server.rows(view) == fold(view, told.sources)


@of_sums
def test_a_crash_between_two_groups_of_rows_loses_and_doubles_nothing(
    server: Server, store_name: str, monkeypatch: pytest.MonkeyPatch, view: TableView
) -> None:
    monkeypatch.setattr(writer, "FIRST_ROWS", 2)
    monkeypatch.setattr(writer, "GROUP_BYTES", 1_000)
    chance = random.Random(1)
    told, target = history(view, events_of(view), 1, length=examples(50)), created(server, view)
    assert crashed_at(server, target, told, chance) == set(MOMENTS[store_name])
    assert server.rows(view) == fold(view, told.sources)


LONG = TableView("long", "group", {"notes": collect({Put: "text"}, limit=1_000), "events": count(Put)}, STORES)


def test_large_rows_are_changed_a_few_at_a_time_and_small_ones_together(
    server: Server, store_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store_name == "memory":
        pytest.skip("it holds all rows anyway")
    monkeypatch.setattr(writer, "FIRST_ROWS", 20)
    monkeypatch.setattr(writer, "GROUP_BYTES", 256 * 1024)
    groups_of: list[str] = []
    target, store = created(server, LONG), server.open(groups_of.append)
    shown: Any = LONG.layout.shown["notes"]
    large, small = [f"large {number:03d}" for number in range(200)], [f"small {number:03d}" for number in range(400)]

    def change(offset: int, keys: Sequence[str], fields: State) -> int:
        """Change these rows in one batch, and return in how many groups."""
        groups_of.clear()
        patches = [Patch(key, "0", Place(offset + at, 0), fields) for at, key in enumerate(keys)]
        store.apply([target], {0: Batch(offset, {LONG.tag: patches})})
        return groups_of.count("rows read")

    notes = [{"_order": f"{number:03d}", "_value": f"{number:03d}" + "x" * 200} for number in range(100)]
    for at in range(0, len(large), 20):
        change(1_000 + at, large[at : at + 20], {shown.field: notes, "events": 1})
    tracemalloc.start()
    try:
        times = change(2_000, large, {"events": 1})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5_000_000, f"{peak_bytes:,} bytes, with 20,000 per row"
    assert times >= 200 * 20_000 / (256 * 1024)

    assert change(3_000, small, {"events": 1}) > 1, "larger by and by"
    assert change(4_000, small, {"events": 1}) == 1
    rows = server.rows(LONG)
    assert rows.keys() == {*large, *small}
    assert {row["events"] for row in rows.values()} == {2}
    assert {len(rows[key]["notes"]) for key in large} == {100}


def test_a_patch_that_is_refused_in_a_later_group_is_told_apart(
    server: Server, store_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store_name == "memory":
        pytest.skip("Python's numbers have no end")
    monkeypatch.setattr(writer, "FIRST_ROWS", 2)
    monkeypatch.setattr(writer, "GROWTH", 1)
    target, store = created(server, BY_THING), server.open()

    def batch(totals: Mapping[str, int]) -> dict[int, Batch]:
        found = [Patch(key, "0", Place(at, 0), {"total": total}) for at, (key, total) in enumerate(totals.items())]
        return {0: Batch(9, {BY_THING.tag: found})}

    with pytest.raises(Unloadable):
        store.apply([target], batch({key: 2**70 if key in "de" else 1 for key in "abcdefghi"}))
    assert store.ledgers(target)[0].next_offset == 0
    store.apply([target], batch(dict.fromkeys("abcfghi", 1)))
    assert {key: row["total"] for key, row in server.rows(BY_THING).items()} == dict.fromkeys("abcfghi", 1)


def test_a_sum_of_decimals_with_too_many_digits_is_refused_by_every_store(server: Server, store_name: str) -> None:
    if store_name == "memory":
        pytest.skip("it refuses nothing")
    target, store = created(server, BY_THING), server.open()
    most = "9" * 36 + ".99"
    for at, paid in enumerate((most, "-0.01", "0.01")):
        store.apply([target], {0: Batch(at, {BY_THING.tag: [Patch("a", "0", Place(at, 0), {"paid": paid})]})})
    with pytest.raises(Unloadable, match='the sum "paid" has more than the 38 digits of its column'):
        store.apply([target], {0: Batch(9, {BY_THING.tag: [Patch("a", "0", Place(9, 0), {"paid": "0.01"})]})})
    assert server.rows(BY_THING)["a"]["paid"] == most


def test_a_row_that_cannot_move_to_its_group_stays_where_it_was(server: Server, store_name: str) -> None:
    """Neither group has a part of the change: a later one takes back what was there."""
    if store_name == "memory":
        pytest.skip("it refuses nothing")
    view = TableView("rents", "town", {"rents": add({Shop: "rent"}), "places": count(Shop)}, STORES)
    target, store, places = created(server, view), server.open(), count_from(0)

    def change(shop: str, town: str | None, rent: str) -> None:
        at = next(places)
        fields = {DELETED: True, CHANGED: at, GROUP: town, own("rents"): rent, own("places"): 1}
        patch = Patch(contribution_key(Shop.topic(), shop), f"{Shop.topic()}/0", Place(at, 0), fields)
        store.apply([target], {0: Batch(at + 1, {view.tag: [patch]})})

    most = "9" * 35 + ".999"
    change("1", "Bern", most)
    change("2", "Chur", "0.001")
    with pytest.raises(Unloadable, match='the sum "rents" has more than the 38 digits'):
        change("2", "Bern", "0.001")
    rows = server.rows(view)
    assert {key: (row["rents"], row["places"]) for key, row in rows.items()} == {
        "Bern": (most, 1),
        "Chur": ("0.001", 1),
    }
    change("2", "Thun", "-7.000")
    change("1", None, "0.000")
    assert {key: row["rents"] for key, row in server.rows(view).items()} == {"Thun": "-7.000"}


@of_sums
@pytest.mark.parametrize("seed", seeds(2))
def test_writers_that_race_for_one_partition_leave_exact_rows(
    server: Server, store_name: str, seed: int, view: TableView
) -> None:
    if store_name == "memory":
        pytest.skip("the reference store is for one thread")
    told, target = history(view, events_of(view), seed, length=200), created(server, view)
    begin = threading.Barrier(3)

    def write(number: int) -> None:
        store = server.open()
        begin.wait()
        load(store, target, told, random.Random(f"{seed}/{number}"))

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(write, number) for number in range(3)]:
            done.result()
    assert server.rows(view) == fold(view, told.sources)


def test_a_writer_that_lost_its_partition_takes_nothing_back(server: Server) -> None:
    told, target = history(BY_THING, events_of(BY_THING), 7), created(server, BY_THING)
    late, new = server.open(), server.open()
    late.apply([target], {0: told.batch(0, 0, 5)})
    end = len(told.patches[0])
    new.apply([target], {0: told.batch(0, 5, end)})
    rows = server.rows(BY_THING)
    late.apply([target], {0: told.batch(0, 5, 10)})
    assert server.rows(BY_THING) == rows
    assert server.open().ledgers(target)[0].next_offset == end


def test_several_targets_and_partitions_go_in_one_call(server: Server) -> None:
    views = (BY_THING, BY_GROUP)
    targets = [created(server, view) for view in views]
    told = [history(view, events_of(view), 3) for view in views]
    both = {
        number: Batch(1_000, {tag: patches for one in told for tag, patches in one.whole(number).patches.items()})
        for number in range(PARTITIONS)
    }
    server.open().apply(targets, both)
    for view, one in zip(views, told, strict=True):
        assert server.rows(view) == fold(view, one.sources)


def test_progress_advances_the_ledger_and_base_is_its_beginning(server: Server) -> None:
    target, store = created(server, BY_THING, {"0": 10, "1": 0}), server.open()
    ledger = store.ledgers(target)[2]
    assert {source: place.offset for source, place in ledger.applied.items()} == {"0": 9}
    store.apply([target], {2: Batch(5, {}, {BY_THING.tag: {"0": 20, "1": 4, CAPTURED: 6}})})
    # that of another version's emitter says nothing of this one
    store.apply([target], {2: Batch(6, {}, {BY_THING.tag: {"0": 15}, "by_thing@2": {"0": 30}})})
    # progress alone may be written late; with a patch it is there once the store is settled
    store.apply([target], {2: Batch(7, {BY_THING.tag: [Patch("a", "2", Place(1, 0), {"total": 1})]})})
    store.settle()
    ledger = server.open().ledgers(target)[2]
    assert {source: place.offset for source, place in ledger.applied.items()} == {"0": 20, "1": 4, CAPTURED: 6, "2": 1}
    assert ledger.next_offset == 7


def test_what_was_applied_a_moment_ago_is_in_the_ledgers_once_it_is_settled_now(server: Server) -> None:
    target, store = created(server, BY_THING), server.open()
    ends = {number: 100 + number for number in range(PARTITIONS)}
    # rows of one partition, and at once progress in all, as a rollback ends
    store.apply([target], {0: Batch(1, {BY_THING.tag: [Patch("a", "0", Place(1, 0), {"total": 1})]})})
    store.apply([target], {each: Batch(end, {}, {BY_THING.tag: {"0": 20}}) for each, end in ends.items()})
    store.settle(now=True)
    found = server.open().ledgers(target)
    assert {each: ledger.next_offset for each, ledger in found.items()} == ends
    assert {ledger.reached("0") for ledger in found.values()} == {21}


BULK = (BY_THING, BY_GROUP, LISTS_BY_THING, LISTS_BY_GROUP, BY_SKU, city_market, streams, *SUMS[1:])


@pytest.mark.parametrize("view", of_views(BULK, (BY_GROUP.name, LISTS_BY_GROUP.name, EDGES_PER_TOWN.name)))
def test_bulk_then_live_counts_every_event_once(server: Server, view: TableView) -> None:
    told = history(view, events_of(view), 11, repeated=False)
    base: dict[str, int] = {}
    for each in told.sources[:70]:
        source = source_id(each.topic, each.position.partition)
        base[source] = max(base.get(source, 0), each.position.offset + 1)
    covered = [
        source
        for source in told.sources
        if source.position.offset < base.get(source_id(source.topic, source.position.partition), 0)
    ]
    target, store = Target(view, 3), server.open()
    store.create(target, base, START)
    rows = list(states(view, covered).items())
    writer = store.bulk_writer(target)
    if not isinstance(server, OnMemory):
        writer = pickle.loads(pickle.dumps(writer))
    for half in (rows[::2], rows[1::2], rows[1::2]):  # the last partition's task is repeated
        assert writer.write(iter([arrow(view, dict(half))])) == len(half)
    assert writer.write(iter([])) == 0
    store.finish(target)
    store.publish(target)
    assert server.rows(view) == fold(view, covered)
    load(store, target, told, random.Random(5))
    assert server.rows(view) == fold(view, told.sources)


def test_the_plain_name_moves_to_the_generation_that_is_published(server: Server) -> None:
    told, first, store = history(BY_THING, events_of(BY_THING), 5), created(server, BY_THING), server.open()
    load(store, first, told, random.Random(1))
    store.create(Target(BY_THING, 2), {}, START)
    store.finish(Target(BY_THING, 2))
    assert server.rows(BY_THING) == fold(BY_THING, told.sources)
    store.publish(Target(BY_THING, 2))
    assert server.rows(BY_THING) == {}
    store.publish(first)
    assert server.rows(BY_THING) == fold(BY_THING, told.sources)


def test_a_generation_that_is_created_again_starts_empty(server: Server) -> None:
    told, target, store = history(BY_THING, events_of(BY_THING), 5), created(server, BY_THING), server.open()
    load(store, target, told, random.Random(1))
    store.create(target, {}, START)
    store.finish(target)
    store.publish(target)
    assert server.rows(BY_THING) == {}
    load(store, target, told, random.Random(1))
    assert server.rows(BY_THING) == fold(BY_THING, told.sources)


def test_nothing_is_written_to_a_generation_that_is_gone(server: Server) -> None:
    told, target, store = history(BY_THING, events_of(BY_THING), 5), created(server, BY_THING), server.open()
    load(store, target, told, random.Random(1))
    remover = server.open()
    remover.drop(target)
    remover.drop(target)
    assert remover.ledgers(target) == {}
    more = {0: Batch(10_000, {BY_THING.tag: [Patch("a", "0", Place(9_000, 0), {"total": 1})]})}
    with pytest.raises(GenerationMissing):
        store.apply([target], more)
    with pytest.raises(GenerationMissing):
        server.open().apply([target], more)
    remover.create(target, {}, START)
    remover.finish(target)
    remover.publish(target)
    assert server.rows(BY_THING) == {}


def test_a_generation_whose_rows_somebody_dropped_is_gone_and_the_others_go_on(server: Server, store_name: str) -> None:
    if store_name in ("memory", "valkey"):
        pytest.skip("a view without rows looks the same")
    told, store = history(BY_THING, events_of(BY_THING), 5), server.open()
    kept, lost = created(server, BY_THING), created(server, BY_GROUP)
    server.lose_rows(lost)
    for _ in range(2):
        with pytest.raises(GenerationMissing, match="by_group"):
            store.apply([kept, lost], {0: Batch(1, {BY_GROUP.tag: [Patch("a", "0", Place(1, 0), {"total": 1})]})})
        assert store.ledgers(lost) == {}
    load(store, kept, told, random.Random(1))
    assert server.rows(BY_THING) == fold(BY_THING, told.sources)


def test_a_row_that_changed_since_it_was_read_is_read_again(server: Server, store_name: str) -> None:
    if store_name in ("memory", "postgres"):
        pytest.skip("it locks the ledgers")
    told, target, other = history(BY_GROUP, events_of(BY_GROUP), 9), created(server, BY_GROUP), server.open()
    behind: list[str] = []

    def overtake(moment: str) -> None:
        if moment == "rows read" and not behind:
            behind.append(moment)
            for number in range(PARTITIONS):
                other.apply([target], {number: told.whole(number)})

    for number in range(PARTITIONS):
        other.apply([target], {number: told.batch(number, 0, 20)})
    slow = server.open(overtake)
    for number in range(PARTITIONS):
        slow.apply([target], {number: told.batch(number, 20, 30)})
    assert behind
    assert server.rows(BY_GROUP) == fold(BY_GROUP, told.sources)


def test_contributions_are_read_again_if_a_writer_that_died_has_changed_them(server: Server, store_name: str) -> None:
    if store_name in ("memory", "postgres"):
        pytest.skip("it locks the ledgers")
    told, target = history(PER_TOWN, events_of(PER_TOWN), 9), created(server, PER_TOWN)
    (partition,) = (each for each, records in told.patches.items() if any(record.patch for record in records))
    behind: list[str] = []

    def dies(moment: str) -> None:
        if moment == "rows written":
            raise Crash

    def overtake(moment: str) -> None:
        if moment == "rows read" and not behind:
            behind.append(moment)
            with pytest.raises(Crash):
                server.open(dies).apply([target], {partition: told.batch(partition, 0, 20)})

    late, end = server.open(overtake), len(told.patches[partition])
    late.apply([target], {partition: told.batch(partition, 0, end // 2)})
    late.apply([target], {partition: told.batch(partition, end // 2, end)})  # takes back what was counted before
    assert behind
    assert server.rows(PER_TOWN) == fold(PER_TOWN, told.sources)


def test_a_generation_dropped_since_a_row_was_read_stays_dropped(server: Server, store_name: str) -> None:
    if store_name in ("memory", "postgres"):
        pytest.skip("it reads and writes rows in one transaction")
    told, target, other = history(BY_GROUP, events_of(BY_GROUP), 9), created(server, BY_GROUP), server.open()
    late = server.open(lambda moment: other.drop(target) if moment == "rows read" else None)
    with pytest.raises(GenerationMissing):
        late.apply([target], {0: told.whole(0)})
    assert other.ledgers(target) == {}
    assert not server.remains(target)


def test_a_loader_keeps_its_place_where_another_was_faster(server: Server) -> None:
    target = created(server, BY_THING)
    ours, theirs = server.open(), server.open()

    def progress(place: int, first: int) -> Batch:
        return Batch(place, {}, {BY_THING.tag: {"0": place}}, first)

    ours.apply([target], {1: progress(3, 0)})
    ours.apply([target], {1: progress(4, 3)})  # too soon after the first to be noted in the store at once
    theirs.apply([target], {0: progress(2, 0)})
    ours.apply([target], {0: progress(2, 0)})
    ours.apply([target], {1: progress(5, 4)})


def test_a_store_that_lost_its_last_writes_is_noticed(server: Server) -> None:
    told, target, store = history(BY_THING, events_of(BY_THING), 5), created(server, BY_THING), server.open()
    later = told.batch(0, 5, 10)
    later.first_offset = 5
    with pytest.raises(LedgerWentBack) as noticed:
        store.apply([target], {0: later})
    assert (noticed.value.expected, noticed.value.actual) == (5, 0)
    assert server.rows(BY_THING) == {}
    store.apply([target], {0: told.batch(0, 0, 5)})
    store.apply([target], {0: later})


def test_a_patch_that_a_store_cannot_hold_is_told_apart(server: Server, store_name: str) -> None:
    if store_name == "memory":
        pytest.skip("Python's numbers have no end")
    target, store = created(server, BY_THING), server.open()
    store.apply([target], {0: Batch(1, {BY_THING.tag: [Patch("a", "0", Place(1, 0), {"total": 1})]})})
    wrong: list[State] = [{"total": 2**70}, {"total": "many"}, {"text": {"a": 1}} | order_of(BY_THING, "text", 1)]
    for fields in wrong[: 2 if store_name == "valkey" else 3]:  # Valkey holds any JSON
        with pytest.raises(Unloadable):
            store.apply([target], {0: Batch(2, {BY_THING.tag: [Patch("b", "0", Place(2, 0), fields)]})})
    store.apply([target], {0: Batch(3, {BY_THING.tag: [Patch("c", "0", Place(3, 0), {"total": 3})]})})
    assert {key: row["total"] for key, row in server.rows(BY_THING).items()} == {"a": 1, "c": 3}


def test_a_value_that_no_index_holds_is_a_patch_that_the_store_refuses(server: Server, store_name: str) -> None:
    target, store = created(server, BY_THING), server.open()
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", k=20_000))
    patches = [
        Patch(key, "0", Place(number, 0), {"text": text} | order_of(BY_THING, "text", 1))
        for number, (key, text) in enumerate({"a": "short", "b": long, "c": "short"}.items())
    ]
    for number, patch in enumerate(patches):
        batch = {0: Batch(number + 1, {BY_THING.tag: [patch]})}
        if store_name == "postgres" and patch.key == "b":
            with pytest.raises(Unloadable, match="maximum"):
                store.apply([target], batch)
        else:
            store.apply([target], batch)
    assert server.rows(BY_THING).keys() == ({"a", "c"} if store_name == "postgres" else {"a", "b", "c"})


def test_bulk_names_the_rows_whose_values_no_index_holds(server: Server, store_name: str) -> None:
    target, store, letters = Target(BY_THING, 1), server.open(), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    long = "".join(random.Random(1).choices(letters, k=20_000))
    rows = {"a": "short", "b": long, long: "short", "c": "short" * 10_000}
    store.create(target, {}, START)
    writer = store.bulk_writer(target)
    for _ in range(2):  # a task may be repeated
        writer.write(iter([arrow(BY_THING, {key: {"text": text} for key, text in rows.items()})]))
    refused = {"b", long} if store_name == "postgres" else set()
    assert set(store.finish(target)) == refused
    store.publish(target)
    assert {key: row["text"] for key, row in server.rows(BY_THING).items()} == {
        key: text for key, text in rows.items() if key not in refused
    }


def test_bulk_refuses_what_live_refuses(server: Server, store_name: str) -> None:
    target, store = created(server, BY_THING), server.open()
    far: State = {"place": {"lat": 91.0, "lon": 10.0}} | order_of(BY_THING, "place", 1)

    def live() -> None:
        store.apply([target], {0: Batch(1, {BY_THING.tag: [Patch("live", "0", Place(1, 0), far)]})})

    for write in (live, lambda: store.bulk_writer(target).write(iter([arrow(BY_THING, {"bulk": far})]))):
        if store_name == "elasticsearch":
            with pytest.raises(Unloadable, match="latitude"):
                write()
        else:
            write()


def test_text_with_nul_stops_nothing(server: Server, store_name: str) -> None:
    target, store = created(server, BY_THING), server.open()
    patch = Patch("k\0", "0", Place(1, 0), {"text": "a\0b"} | order_of(BY_THING, "text", 1))
    store.apply([target], {0: Batch(1, {BY_THING.tag: [patch, patch._replace(key="plain", place=Place(2, 0))]})})
    rows = server.rows(BY_THING)
    assert len(rows) == 2
    assert {row["text"] for row in rows.values()} == {"a\ufffdb" if store_name == "postgres" else "a\0b"}


def test_any_keys_are_rows_of_their_own(server: Server) -> None:
    keys = [
        "",
        " ",
        ".",
        "..",
        "%",
        "%25",
        "a/b",
        "a\nb",
        "\u00e9",
        "e\u0301",
        "A",
        "a",
        "'\"\\",
        "0",
        "00",
        "ab" * 1_500,
    ]
    live, bulk, store = created(server, BY_THING), Target(BY_THING, 2), server.open()
    patches = [Patch(key, "0", Place(number, 0), {"total": number}) for number, key in enumerate(keys)]
    store.apply([live], {0: Batch(len(keys), {BY_THING.tag: patches})})
    expected = {key: number for number, key in enumerate(keys)}
    assert {key: row["total"] for key, row in server.rows(BY_THING).items()} == expected
    store.create(bulk, {}, START)
    store.bulk_writer(bulk).write(iter([arrow(BY_THING, {key: {"total": n} for key, n in expected.items()})]))
    assert set(store.finish(bulk)) == set()
    store.publish(bulk)
    assert {key: row["total"] for key, row in server.rows(BY_THING).items()} == expected


def test_entries_with_nul_stop_nothing(server: Server, store_name: str) -> None:
    target, store = created(server, LISTS_BY_THING), server.open()
    shown: Any = LISTS_BY_THING.layout.shown
    texts, story = shown["texts"].field, shown["story"].field
    for number in range(2):
        fields = {texts: [{"_value": "a\0b"}], story: [{"_order": number, "text": "a\0b"}]}
        patch = Patch("k", "0", Place(number, 0), fields)
        store.apply([target], {0: Batch(number + 1, {LISTS_BY_THING.tag: [patch]})})
    row = server.rows(LISTS_BY_THING)["k"]
    text = "a\ufffdb" if store_name == "postgres" else "a\0b"
    assert (row["texts"], [each["text"] for each in row["story"]]) == (1, [text, text])


def test_a_row_is_deleted_and_restored_in_any_order_of_arrival(server: Server) -> None:
    target, store = created(server, BY_GROUP), server.open()
    marks = {1: Removed, 2: Restored, 3: Removed}
    for step, time in enumerate((2, 1, 3)):  # the restoration arrives first, though it happened second
        mark = {"_deleted": marks[time] is Removed} | order_of(BY_GROUP, "_deleted", f"{time:015d}|00000|{0:019d}")
        patch = Patch("k", str(time), Place(1, 0), {**mark, "total": 1})
        store.apply([target], {0: Batch(step, {BY_GROUP.tag: [patch]})})
        assert ("k" in server.rows(BY_GROUP)) is (step < 2), f"after step {step}"


def test_a_store_that_is_away_says_so(store_name: str) -> None:
    if store_name == "memory":
        pytest.skip("memory is never away")
    port = free_port()
    away = StoreSettings(
        "t_away", f"postgresql://x@127.0.0.1:{port}/x", f"http://127.0.0.1:{port}", f"valkey://127.0.0.1:{port}"
    )
    store, target = SERVERS[store_name](away).open(), Target(BY_THING, 1)
    rows = [arrow(BY_THING, {"a": {}})]
    for call in (
        lambda: store.apply([target], {0: Batch(1)}),
        lambda: store.ledgers(target),
        lambda: store.create(target, {}, START),
        lambda: store.publish(target),
        lambda: store.drop(target),
        lambda: store.bulk_writer(target).write(iter(rows)),
    ):
        with pytest.raises(StoreUnavailable):
            call()
    store.close()


def order_of(view: TableView, name: str, order: Any) -> State:
    """The ordering key that belongs to a state field."""
    monoid = next(monoid for monoid in view.layout.monoids if any(field.name == name for field in monoid.fields))
    return {monoid.fields[0].name: order}


ARROW = {
    ColumnType.TEXT: pa.string(),
    ColumnType.INTEGER: pa.int64(),
    ColumnType.FLOAT: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIME: pa.timestamp("us", "UTC"),
    ColumnType.POINT: pa.struct([("lat", pa.float64()), ("lon", pa.float64())]),
    ColumnType.JSON: pa.string(),
    ColumnType.DATE: pa.string(),
    ColumnType.UUID: pa.string(),
}


def arrow(view: TableView, rows: Mapping[str, State]) -> pa.RecordBatch:
    """Rows in the Arrow form that Spark hands to a BulkWriter."""
    columns = {view.key_name: pa.array(list(rows), pa.string())}
    for field in view.layout.fields:
        values = [_spark(row.get(field.name), field) for row in rows.values()]
        columns[field.name] = pa.array(values, arrow_type(field))
    return pa.RecordBatch.from_pydict(columns)


def arrow_type(field: StateField) -> pa.DataType:
    if not field.entry:
        return pa.string() if field.type.is_decimal else ARROW[field.type]
    if field.type is ColumnType.COUNTS and field.entry[0].type is not ColumnType.INTEGER:
        return pa.list_(pa.struct([("v", pa.string()), ("n", pa.int64())]))
    return pa.list_(pa.struct([(span.name, arrow_type(span)) for span in field.entry]))


def _spark(value: Any, field: StateField) -> Any:
    if value is None:
        return None
    match field.type:
        case ColumnType.TIME:
            return datetime.fromisoformat(value)
        case ColumnType.COUNTS:
            whole = field.entry[0].type is ColumnType.INTEGER
            return [{"v": int(each) if whole else each, "n": number} for each, number in value.items()]
        case ColumnType.SKETCH:
            return [{"v": at, "n": ord(each) - ZERO} for at, each in enumerate(value) if ord(each) > ZERO]
        case ColumnType.ENTRIES:
            return [{span.name: _spark(entry.get(span.name), span) for span in field.entry} for entry in value]
        case _:
            return value
