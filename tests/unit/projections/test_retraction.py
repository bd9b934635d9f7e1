"""Aggregates over rows of captured tables: what is refused, and that rows are those of a replay whatever happened."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest

from headwater import (
    EVERY,
    Deleted,
    Postgres,
    TableView,
    Topic,
    above,
    add,
    average,
    collect,
    count,
    current,
    envelope,
    equals,
    last,
    maximum,
    minimum,
    minus,
    value,
)
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.eventlog.envelope import Envelope, Position
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.folding import combining, tasks
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import FoldedView, Folder
from headwater.projections.reading.program import decoders
from headwater.projections.reading.reader import finish, fold, is_deleted, lift
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import Source
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import GROUP, MARK, Patch, own
from headwater.projections.table.rows import row_of
from headwater.projections.testing.contracts import START, history
from headwater.projections.testing.rows import check_any_order, check_sources, rows_of
from headwater.replay.comparison import Comparison, compare
from headwater.replay.errors import CannotFoldRow
from headwater.replay.row import fold_rows
from tests.contracts.counted_views import (
    COUNTED_VIEWS,
    EDGES_PER_TOWN,
    MONEY_PER_TOWN,
    PER_BALANCE,
    PER_DAY,
    PER_TOWN,
    Person,
    Shop,
)
from tests.contracts.view_histories import BY_THING
from tests.support.captured_things import USUAL, Thing
from tests.support.seeds import seed_of, sweep
from tests.support.shares import share_of
from tests.support.topic_records import TopicRecord, patches_in
from tests.unit.capturing.records import record
from tests.unit.projections.test_rows_on_disk import Kept, small
from tests.unit.replay.test_comparison import Stored

STORES = (Postgres(),)
TOWNS = (None, "Bern", "Chur", "Thun", "", "a/b", f"{MARK}x")
TOPIC = Person.topic()
OF_PEOPLE = tuple(COUNTED_VIEWS.values())


@dataclass(frozen=True)
class Change:
    """A record of the table's topic; row: None is a delete."""

    offset: int
    key: str
    row: Mapping[str, Any] | None

    @property
    def source(self) -> Source:
        event: type[Event] = row_of(Person) if self.row is not None else Deleted(Person)
        what = Envelope(f"{TOPIC}/0:{self.offset}", event.type, self.key, START, self.row or {}, sequence=self.offset)
        return Source(what, Position(0, self.offset), 0, "", TOPIC)

    @property
    def record(self) -> TopicRecord:
        """As Debezium writes it; some deletes are tombstones only."""
        op = "c" if self.row is not None else "d"
        row = None if self.row is None else {"id": int(self.key), **self.row}
        value = None if row is None and self.offset % 2 else record(after=row, op=op)
        return TopicRecord(f"{TOPIC}/0", self.offset, 0, b'{"id":%b}' % self.key.encode(), value)


def random_changes(chance: random.Random, length: int = 300, keys: int = 12) -> list[Change]:
    """Changes of a few rows, among them deletes, rows that are read again, and tombstones behind deletes."""
    found: list[Change] = []
    rows: dict[str, Mapping[str, Any] | None] = {}
    offset = 0
    while len(found) < length:
        offset += chance.choice((1, 1, 2, 7))
        key = str(chance.randrange(keys))
        row: Mapping[str, Any] | None = {
            "town": chance.choice(TOWNS),
            "points": chance.choice((None, 0, 1, -5, 2**40)),
            "spent": chance.choice((-7, 0, 3)),
            "is_member": chance.random() < 0.5,
            "balance": chance.choice((None, "0.00", "-0.01", "9999999999.99", "-9999999999.99", "12.50", "1E+1")),
            "fee": chance.choice(("0", "0.00000001", "999999999999.99999999", "-7")),
            "joined": chance.choice((None, "2026-01-01", "0001-01-01", "9999-12-31", "2024-02-29")),
            "weight": chance.choice((None, 0.0, -0.0, 1, 1e300, 5e-324, 0.1)),
            "seen": chance.choice(
                (None, "2026-01-01T00:00:00.123Z", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z")
            ),
        }
        match chance.randrange(8):
            case 0:
                row = None
            case 1 | 2:
                row = rows.get(key)  # a snapshot, a sweep, or Connect, which sent it twice
        rows[key] = row
        found.append(Change(offset, key, row))
    return found


def compacted(chance: random.Random, changes: list[Change], until: int) -> list[Change]:
    """What compaction leaves: of the records before `until`, perhaps only the last of each row, and no old deletes."""
    last = {change.key: change for change in changes if change.offset < until}
    return [
        change
        for change in changes
        if change.offset >= until
        or (last[change.key] is change and (change.row is not None or chance.random() < 0.5))
        or (last[change.key].row is not None and chance.random() < 0.1)
    ]


def patches_of(view: TableView, changes: list[Change]) -> list[Patch]:
    return [patch for change in changes for patch in lift(view, change.source)]


def apply(store: MemoryStore, target: Target, patches: list[Patch], next_offset: int) -> None:
    store.apply([target], {0: Batch(next_offset, {target.tag: patches})})


@pytest.mark.parametrize("view", OF_PEOPLE, ids=lambda view: view.name)
@pytest.mark.parametrize("number", sweep(8, 2))
def test_rows_are_those_of_a_replay_although_emitters_start_again_on_a_compacted_topic(
    number: int, view: TableView
) -> None:
    chance = random.Random(seed_of(number))
    changes = random_changes(chance)
    expected = fold(view, [change.source for change in changes])
    target, memory = Target(view, 1), Memory()
    store = MemoryStore(memory)
    store.create(target, {}, {0: 0})
    log, at, sent = changes, 0, 0
    while at < changes[-1].offset + 1:
        # an emitter reads on, perhaps from an earlier place of a topic of which compaction has removed more
        log = compacted(chance, log, chance.randrange(at + 1))
        start, end = max(0, at - chance.choice((0, 0, 40))), at + chance.randrange(1, 60)
        sent += 1
        apply(store, target, patches_of(view, [each for each in log if start <= each.offset < end]), sent)
        at = end
    assert store.rows(target) == expected
    assert fold(view, [each.source for each in log]) == expected, "and a replay of what is left has them too"


@pytest.mark.parametrize("number", sweep(20, 3))
def test_live_changes_continue_a_bulk_that_lacks_rows_which_compaction_has_removed(number: int) -> None:
    chance = random.Random(seed_of(number))
    changes = random_changes(chance)
    end = changes[chance.randrange(len(changes))].offset
    # while bulk reads, everything before later records of the same row may go, also below its end
    left = compacted(chance, changes, changes[-1].offset + 1)
    target, store = Target(PER_TOWN, 1), MemoryStore(Memory())
    store.create(target, {}, {0: 0})
    apply(store, target, patches_of(PER_TOWN, [each for each in left if each.offset < end]), 1)
    apply(store, target, patches_of(PER_TOWN, [change for change in changes if change.offset >= end]), 2)
    assert store.rows(target) == fold(PER_TOWN, [change.source for change in changes])


@pytest.mark.parametrize("number", sweep(8, 2))
def test_sums_of_decimals_are_those_of_exact_arithmetic_over_the_rows_that_are_left(number: int) -> None:
    changes = random_changes(random.Random(seed_of(number)), keys=40)
    people = [row for row in {change.key: change.row for change in changes}.values() if row is not None]
    days, balances = (
        {
            group: (len(rows), sum((Decimal(row["fee"]) for row in rows), Decimal(0)))
            for group in {row[name] for row in counted} - {None}
            for rows in [[row for row in counted if row[name] == group]]
        }
        for name, counted in (
            ("joined", people),
            ("balance", [row for row in people if row["joined"] not in (None, "2026-01-01")]),
        )
    )
    for view, expected in ((PER_DAY, days), (PER_BALANCE, balances)):
        rows = fold(view, [change.source for change in changes])
        found = {key: (row["people"], row["fees"]) for key, row in rows.items()}
        assert found == {
            f"{Decimal(key):.2f}" if view is PER_BALANCE else key: (number, f"{total:.8f}")
            for key, (number, total) in expected.items()
        }


@pytest.mark.parametrize("number", sweep(8, 2))
def test_a_lowest_value_rises_again_when_its_row_goes_and_falls_when_one_comes(number: int) -> None:
    changes = random_changes(random.Random(seed_of(number)), keys=40)
    view = replace(EDGES_PER_TOWN, where={})
    for end in range(1, len(changes), 37):
        left = [row for row in {change.key: change.row for change in changes[:end]}.values() if row is not None]
        found = fold(view, [change.source for change in changes[:end]])
        towns = {row["town"] for row in left} - {None}
        assert len(found) == len(towns)
        for town in towns:
            rows, shown = [row for row in left if row["town"] == town], found[town.replace(MARK, "\ufffd")]

            def values(name: str, of: list[Any] = rows) -> list[Any]:
                return [row[name] for row in of if row[name] is not None]

            points, balances = values("points"), [Decimal(each) for each in values("balance")]
            assert (shown["fewest"], shown["most"]) == (min(points, default=None), max(points, default=None))
            assert shown["dearest"] == (f"{max(balances):.3f}".replace("-0.000", "0.000") if balances else None)
            assert shown["cheapest"] == (f"{min(balances):.3f}" if balances else None)
            assert shown["first_joined"] == min(values("joined"), default=None)
            assert shown["lightest"] == min(values("weight"), default=None)
            assert shown["last_seen"] == max(values("seen"), default=None)


def test_a_row_that_moves_changes_two_groups_and_the_last_one_takes_its_group_away() -> None:
    view = TableView("per_town", "town", {"people": count(Person), "points": add({Person: "points"})}, STORES)
    row = {"town": "Bern", "points": 5, "spent": 0, "is_member": True}

    def rows(*changes: Change) -> dict[str, Any]:
        return {key: (each["people"], each["points"]) for key, each in fold(view, [c.source for c in changes]).items()}

    both = (Change(0, "1", row), Change(1, "2", row | {"points": None}))
    assert rows(*both) == {"Bern": (2, 5)}
    assert rows(*both, Change(2, "1", row | {"town": "Chur", "points": 7})) == {"Bern": (1, 0), "Chur": (1, 7)}
    assert rows(*both, Change(2, "1", None), Change(3, "2", row | {"town": None})) == {}
    assert rows(*both, Change(2, "1", None), Change(3, "1", None)) == {"Bern": (1, 0)}, "a tombstone behind its delete"


@pytest.mark.parametrize(
    ("columns", "changed", "problem"),
    [
        ({"a": count(Person), "b": current(Person, "town")}, {}, "declare two views"),
        ({"a": count(Person), "b": count(EVERY)}, {}, "declare two views"),
        ({"a": count(Person)}, {"key": envelope("stream"), "key_name": "x"}, "is one of their columns"),
        ({"a": count(Person)}, {"key": ("town", "points")}, "is one of their columns"),
        ({"a": count(Person)}, {"deleted_by": (Deleted(Person),)}, "leave out deleted_by"),
        ({"a": count(Person)}, {"key": "city"}, 'has no field "city"'),
        ({"a": count(Thing)}, {"key": "weight"}, "group by a column of texts, integers, booleans, decimals or days"),
        ({"a": add({Person: "town"})}, {}, "only sums of integers"),
        ({"a": last({Person: "town"})}, {}, "is a captured table"),  # type: ignore[dict-item]
        ({"a": maximum({Person: "town"})}, {}, "highest or lowest needs numbers, times or dates, not text"),
        ({"a": maximum({Thing: "price"})}, {"key": "note"}, r"write price: Annotated\[Decimal, Field\(max_digits=12"),
        ({"a": minimum({Person: "points"}), "b": current(Person, "town")}, {}, "declare two views"),
        ({"a": collect({Person: "points"})}, {}, "is a captured table"),  # type: ignore[dict-item]
        ({"a": count(Person)}, {"where": {Shop: equals("town", value("x"))}}, "is a captured table"),
        ({"a": count(Person)}, {"where": {Person: "town"}}, "field"),
        ({"a": average({Person: "is_member"})}, {}, "only sums of integers"),
        ({"a": add({Thing: "price"})}, {"key": "note"}, r"write price: Annotated\[Decimal, Field\(max_digits=12"),
        ({"a": add({Thing: minus("price", 1)})}, {"key": "note"}, r"write price: Annotated\[Decimal, Field\(max_d"),
        ({"a": count(Thing)}, {"key": "note", "where": above("price", 1)}, r"write price: Annotated"),
    ],
)
def test_what_cannot_be_taken_back_is_refused_by_name(
    columns: dict[str, Any], changed: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ViewDeclarationError, match=problem):
        TableView(**{"name": "wrong", "key": "town", "columns": columns, "stores": STORES, **changed})


def test_a_renamed_class_keeps_the_fingerprint() -> None:
    assert all("Person" not in line and "Shop" not in line for line in PER_TOWN.declaration)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("view", [PER_TOWN, MONEY_PER_TOWN, EDGES_PER_TOWN], ids=lambda view: view.name)
@pytest.mark.parametrize("number", sweep(3, 1))
def test_bulk_writes_the_groups_of_all_its_contributions(
    number: int, view: TableView, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few:
        small(monkeypatch)
        monkeypatch.setattr(combining, "ROWS_IN_MEMORY", 2)
    changes = random_changes(random.Random(seed_of(number)), keys=80)
    records, program = [change.record for change in changes], compiled(view)
    rows: dict[str, State] = {}
    shares = []
    for some in (records[::2], records[1::2]):
        folder = Folder(FoldedView, decoders([view]), [program])
        for each in some:
            folder.add(each.source, [each.message])
        shares.append(share_of([folder.views[0].drain()], 4))
    for each in records:
        with suppress(Unreadable):
            for patch in view.layout.with_groups(patches_in(view, each), rows):
                view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    expected = {key: finish(view, key, row) for key, row in rows.items() if not is_deleted(row)}
    (pieces,) = tasks.groups(shares, 0, program, 2)
    writers = [Kept(DocumentForm.of(view)), Kept(DocumentForm.of(view))]
    written = tasks.write(program, writers, pieces).rows
    for writer in writers:
        assert len(dict(writer.rows)) == len(writer.rows) == written
        found = {key: finish(view, key, row) for key, row in writer.rows if not is_deleted(row)}
        assert found == expected
        assert len(found) > 3


def test_bulk_names_the_group_whose_sum_of_decimals_has_too_many_digits() -> None:
    view = TableView("costs", "note", {"rate": add({Thing: "rate"})}, STORES)
    folder, program = Folder(FoldedView, decoders([view]), [compiled(view)]), compiled(view)
    usual = {name: values[0] for name, values in USUAL.items()}
    for at, (note, rate) in enumerate((("a", "9" * 28), ("a", "9" * 28), ("b", "1"))):
        change = record(after={**usual, "id": at, "note": note, "rate": rate}, op="c")
        what = TopicRecord(f"{Thing.topic()}/0", at, 0, b'{"id":%d}' % at, change)
        folder.add(what.source, [what.message])
    assert folder.views[0].letters == []
    (pieces,) = tasks.groups([share_of([folder.views[0].drain()], 4)], 0, program, 1)
    writer = Kept(DocumentForm.of(view))
    written = tasks.write(program, [writer], pieces)
    assert written.refused == (frozenset({"a"}),)
    assert {key: row["rate"] for key, row in writer.rows if not is_deleted(row)} == {"b": "1.0000000000"}


ANN = Person(id=1, town="Bern", points=3, spent=1, is_member=True)


def test_the_test_kit_has_changes_and_deletes_of_rows() -> None:
    bob = ANN.model_copy(update={"id": 2, "points": 7})
    moved = ANN.model_copy(update={"town": "Chur"})
    assert {key: row["people"] for key, row in rows_of(PER_TOWN, ANN, bob, moved).items()} == {"Bern": 1, "Chur": 1}
    given = (ANN, bob, moved, RowDeleted(Person, "2"), Shop(country="CH", number=1, town="Chur", staff=4))
    assert rows_of(PER_TOWN, *given) == {
        "Chur": {"town": "Chur", "people": 1, "points": 3, "left": 6, "mean": 3.0, "share": 0.5, "places": 1}
    }
    check_any_order(PER_TOWN, *given)


@pytest.mark.parametrize("view", OF_PEOPLE, ids=lambda view: view.name)
@pytest.mark.parametrize("number", sweep(5, 1))
def test_rows_do_not_depend_on_how_changes_are_combined(number: int, view: TableView) -> None:
    seed = seed_of(number)
    made = history(view, list(view.plan.events.values()), seed)
    check_sources(view, made.sources, seed, tries=3)


def test_a_verify_compares_contributions_and_groups_but_no_groups_that_are_gone() -> None:
    rows: dict[str, State] = {}
    changes = random_changes(random.Random(seed_of(0)))
    for change in changes:
        for patch in PER_TOWN.layout.with_groups(lift(PER_TOWN, change.source), rows):
            PER_TOWN.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    replayed = {key: row for key, row in rows.items() if not is_deleted(row) or row.get(GROUP) is not None}
    assert len(replayed) < len(rows), "some rows are in no group, or groups are without rows"
    wrong = next(key for key in replayed if key.startswith(MARK))
    group = next(key for key in replayed if not key.startswith(MARK))
    left, right = Target(PER_TOWN, 1), Target(PER_TOWN, 2)

    def compared(other: dict[str, State], changed: frozenset[str]) -> Comparison:
        return compare(Stored(rows, other), "memory", left, right, lambda: lambda: changed)

    assert compared(replayed, frozenset()).differences == 0
    assert compared({**replayed, wrong: replayed[wrong] | {own("people"): 9}}, frozenset()).differences == 1
    moving = compared({**replayed, group: replayed[group] | {"people": 99}}, frozenset({wrong}))
    assert (moving.differences, moving.undecided) == (0, 1), "a patch names only the contribution"


def test_a_row_with_a_topic_is_not_replaced_in_its_other_stores_alone() -> None:
    deployment: Any = None  # it is not asked
    view = replace(BY_THING, stores=(Postgres(), Topic()))
    with pytest.raises(CannotFoldRow, match="single rows in the store topic are not replaced: rebuild the view"):
        fold_rows(deployment, view, ["a"], ["postgres", "topic"], lambda _: None, write=True)


def test_a_single_group_is_not_folded_again() -> None:
    deployment: Any = None  # it is not asked
    with pytest.raises(CannotFoldRow, match="replay verify per_town"):
        fold_rows(deployment, PER_TOWN, ["Bern"], ["postgres"], lambda _: None, write=True)
