"""What a store refuses changes nothing, and costs a few writes: the others of its batch are applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import Any, cast

import pytest

from headwater.eventlog.ports import Entry
from headwater.projections.errors import Unloadable
from headwater.projections.generations.rebuild import rebuild
from headwater.projections.generations.rebuild.engine import BulkResult, Load
from headwater.projections.generations.rebuild.rebuild import Rebuilt
from headwater.projections.loading.refused_patches import apply_fitting
from headwater.projections.stores import writer
from headwater.projections.stores.backend import Rows, Size
from headwater.projections.stores.declared import Elasticsearch
from headwater.projections.stores.documents import Guard
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Ledger, Target, no_fault
from headwater.projections.stores.writer import Advanced, Encoded, FirstKeys, ReadRow, RowStore, Writer
from headwater.projections.table.folds import add, count
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import CHANGED, GROUP, Patch, Place, contribution_key, own
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.counted_views import Person
from tests.contracts.view_histories import BY_THING
from tests.unit.projections.kept_letters import KeptLetters
from tests.unit.projections.rebuild_stage import Folded, staged

PER_TOWN = TableView("points", "town", {"points": add({Person: "points"}), "people": count(Person)}, (Elasticsearch(),))
COUNTED, THINGS = Target(PER_TOWN, 1), Target(BY_THING, 1)
MOST = 2**63 - 1


@dataclass
class Known:
    ledgers: dict[int, Ledger]


@dataclass
class Documents(RowStore[Known]):
    """A store without transactions, like Elasticsearch and Valkey. refuses: keys that it cannot hold."""

    refuses: Collection[str] = ()
    stored: dict[str, tuple[State, Guard]] = field(default_factory=dict)
    ledgers: dict[int, Ledger] = field(default_factory=lambda: {0: Ledger(0)})
    reads: int = 0

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[Known]:
        return [Known(self.ledgers) for _ in targets]

    def read_rows(self, target: Target, keys: Sequence[str], known: Known) -> dict[str, ReadRow]:
        self.reads += 1
        found = {key: self.stored.get(key) for key in keys}
        return {
            key: ReadRow({}, {}) if row is None else ReadRow(dict(row[0]), dict(row[1]), True)
            for key, row in found.items()
        }

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: Known
    ) -> Encoded:
        if refused := rows.keys() & set(self.refuses):
            raise ValueError(f"no {refused}")
        written = {key: (dict(row.state), dict(row.guard)) for key, row in rows.items()}
        return Encoded(written, len(repr(written)))

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        self.stored |= encoded.writes
        return ()

    def write_ledgers(self, advanced: Sequence[Advanced[Known]]) -> Collection[Target]:
        for ledger in advanced:
            self.ledgers |= ledger.ledgers
        return ()

    def rows(self, target: Target) -> Rows:
        raise NotImplementedError

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        raise NotImplementedError

    def size(self, target: Target) -> Size:
        raise NotImplementedError

    def close(self) -> None: ...

    def groups(self) -> dict[str, tuple[int, int]]:
        """The points and people of each town."""
        return {
            key: (state["points"], state["people"]) for key, (state, _) in self.stored.items() if not state[DELETED]
        }


@pytest.fixture(params=[100, 1], ids=["together", "row by row"])
def rows_together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writer, "FIRST_ROWS", request.param)
    monkeypatch.setattr(writer, "GROWTH", 1)
    yield


def moves(*people: tuple[str, str | None, int]) -> Batch:
    """A batch in which people are in towns, with their points."""
    patches = []
    for (person, town, points), at in zip(people, count_from(), strict=False):
        fields = {DELETED: True, CHANGED: at, GROUP: town, own("points"): points, own("people"): 1}
        patches.append(Patch(contribution_key(Person.topic(), person), f"{Person.topic()}/0", Place(at, 0), fields))
    return Batch(len(people), {PER_TOWN.tag: patches})


@pytest.mark.parametrize("room", [8 * 2**20, 1], ids=["small", "large"])
@pytest.mark.usefixtures("rows_together")
def test_a_move_to_a_group_that_a_store_cannot_hold_changes_no_group(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_BYTES", room)
    store, letters = Documents(refuses={"Thun"}), KeptLetters()
    writing = Writer(store, "a store", no_fault)
    told = moves(("1", "Bern", 5), ("2", "Bern", 7), ("1", "Thun", 5), ("2", "Chur", 7), ("1", "Chur", 5))
    number = apply_fitting(writing.apply, [COUNTED], {0: told}, "a store", cast("Any", letters))
    assert number == 1
    assert store.groups() == {"Chur": (12, 2)}
    assert [key for key, _, _ in letters.kept] == [f"patches/a store/{PER_TOWN.tag}/{Person.topic()}/0/2/0"]


@pytest.mark.usefixtures("rows_together")
def test_a_sum_beyond_64_bits_is_refused_before_a_group_is_written() -> None:
    store, letters = Documents(), KeptLetters()
    writing = Writer(store, "a store", no_fault)
    told = moves(("1", "Bern", MOST), ("2", "Chur", 1), ("2", "Bern", 1), ("2", "Thun", 1))
    assert apply_fitting(writing.apply, [COUNTED], {0: told}, "a store", cast("Any", letters)) == 1
    assert store.groups() == {"Bern": (MOST, 1), "Thun": (1, 1)}


def test_groups_that_are_checked_are_not_read_again() -> None:
    store = Documents()
    Writer(store, "a store", no_fault).apply([COUNTED], {0: moves(("1", "Bern", 1), ("2", "Chur", 1))})
    assert store.reads == 2, "contributions, and groups"


@pytest.mark.parametrize("start", [1, MOST - 1])
def test_a_sum_is_refused_whatever_is_applied_together(start: int) -> None:
    """Stores have the same rows, however large their batches are."""
    cents = (start, 2, -1, 5)
    patches = [Patch("a", "0", Place(at, 0), {"total": number}) for at, number in enumerate(cents)]
    found = set()
    for size in range(1, 5):
        store, letters = MemoryStore(Memory()), KeptLetters()
        store.create(THINGS, {}, {0: 0})
        for first in range(0, len(patches), size):
            batch = Batch(first + size, {BY_THING.tag: patches[first : first + size]}, first_offset=first)
            apply_fitting(store.apply, [THINGS], {0: batch}, "memory", cast("Any", letters))
        found.add((store.rows(THINGS)["a"]["total"], tuple(key for key, _, _ in letters.kept)))
    assert len(found) == 1


class Costly(MemoryStore):
    """calls: the generations of each call of `apply`."""

    calls: list[int]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self.calls.append(len(targets))
        if any(patch.key == "bad" for batch in batches.values() for patch in batch.patches.get(BY_THING.tag, ())):
            raise Unloadable("memory", "bad")
        super().apply(targets, batches)


@pytest.mark.parametrize("at", [0, 1_234, 4_999])
def test_a_refused_patch_of_thousands_costs_a_few_writes(at: int) -> None:
    store, letters = Costly(Memory()), KeptLetters()
    store.calls = []
    for target in (COUNTED, THINGS):
        store.create(target, {}, {0: 0, 1: 0})
    keys = ["bad" if number == at else f"k{number}" for number in range(5_000)]
    patches = [Patch(key, "0", Place(number, 0), {"total": 1}) for number, key in enumerate(keys)]
    batches = {0: Batch(3_000, {BY_THING.tag: patches[:3_000]}), 1: Batch(2_000, {BY_THING.tag: patches[3_000:]})}
    assert apply_fitting(store.apply, [COUNTED, THINGS], batches, "memory", cast("Any", letters)) == 1
    assert len(store.calls) < 40
    assert max(store.calls[1:]) == 1, "the ledgers of other views are left alone"
    assert store.rows(THINGS).keys() == set(keys) - {"bad"}
    assert {partition: ledger.next_offset for partition, ledger in store.ledgers(THINGS).items()} == {
        0: 3_000,
        1: 2_000,
    }
    assert {partition: ledger.next_offset for partition, ledger in store.ledgers(COUNTED).items()} == {
        0: 3_000,
        1: 2_000,
    }


class Grouping(Folded):
    """An engine whose bulk has refused a group, after it wrote the contributions and the other groups."""

    told: Batch

    def bulk_load(self, loads: Sequence[Load[View]]) -> list[Any]:
        return [BulkResult(5, 4, 0.1, refused=[frozenset({"Bern"})]) for _ in loads]

    def row_patches(
        self, load: Load[View], keys: Set[str] | None, streams: Collection[str] | None = None
    ) -> Iterable[Patch]:
        assert keys is None, "other groups have lost and got rows, too"
        return self.told.patches[PER_TOWN.tag]


@pytest.mark.parametrize("skips", [True, False])
def test_a_rebuild_leaves_out_of_groups_what_a_loader_leaves_out(skips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told = moves(("1", "Bern", MOST), ("2", "Bern", 1), ("3", "Chur", 4), ("3", "Bern", 4), ("3", "Thun", 9))
    live, letters, rebuilt = MemoryStore(Memory()), KeptLetters(), KeptLetters()
    live.create(COUNTED, {}, {0: 0})
    assert apply_fitting(live.apply, [COUNTED], {0: told}, "memory", cast("Any", letters)) == 2

    stage = staged(monkeypatch, {})
    stage.log.submit(Entry(Person.topic(), "1", b"{}", 1), 0).result()
    stage.engine = Grouping({})
    stage.engine.told = told
    monkeypatch.setattr(rebuild, "DeadLetters", lambda _: rebuilt)
    written = {
        "Chur": {"points": 8, "people": 1},
        contribution_key(Person.topic(), "1"): {GROUP: "Bern", DELETED: True},
    }
    monkeypatch.setattr(
        MemoryStore, "bulk_writer", lambda store, target: store._memory.generations[target.id].rows.update(written)
    )
    ((_, result),) = stage.rebuilder.rebuild_all([PER_TOWN], skip_poison=skips)
    if skips:
        assert isinstance(result, Rebuilt)
        assert result.refused == 2
        assert stage.store.rows(COUNTED) == live.rows(COUNTED)
        assert rebuilt == letters
    else:
        assert 'refuses record cdc.census.public.people/0:1 in row "cdc.census.public.people/2"' in str(result)
