"""The test kit for views: rows after events, and rows that no order of combining changes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import (
    EVERY,
    Aggregate,
    Command,
    Event,
    Lookup,
    Postgres,
    TableView,
    add,
    at_least,
    count,
    default,
    envelope,
    item,
    last,
    rename,
    upcast,
)
from headwater.commands.errors import UnreadableEvent
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.table.folds.fold import Cases, Ordering, Stored, read
from headwater.projections.table.monoids import State, StateField, Sum
from headwater.projections.table.types import ColumnType
from headwater.projections.views import streams
from headwater.samples.listings.domain import Listed, PriceChanged, Withdrawn
from headwater.samples.listings.views import listings
from headwater.testing import at, check_any_order, contracts_of_views, recorded, rows_of
from tests.support.listed import LISTING


class Line(BaseModel):
    model_config = ConfigDict(frozen=True)
    sku: str
    pieces: int


class Packed(Event, type="crate.packed", version=2, history=[upcast(1, rename("shop", "owner"), default("fee", 0))]):
    crate_id: str
    owner: str
    fee: int
    lines: list[Line]


class Emptied(Event, type="crate.emptied"):
    crate_id: str
    owner: str


class Pack(Command, type="crate.pack"):
    crate_id: str


class Crate(BaseModel):
    model_config = ConfigDict(frozen=True)


def evolve(state: Crate, event: Packed | Emptied) -> Crate:
    return state


def decide(command: Pack, state: Crate) -> Sequence[Event]:
    return []


crate = Aggregate(name="crate", id_field="crate_id", initial=Crate(), decide=decide, evolve=evolve)


def packed(crate_id: str, fee: int = 1, owner: str = "Ada", **lines: int) -> Packed:
    made = [Line(sku=sku, pieces=pieces) for sku, pieces in lines.items()]
    return Packed(crate_id=crate_id, owner=owner, fee=fee, lines=made)


crates = TableView(
    name="crates",
    key="crate_id",
    columns={"owner": last({Packed: "owner"}), "packed": count(Packed), "at": last({Packed: envelope("time")})},
    deleted_by=(Emptied,),
    lookups=(Lookup("owners", on="owner", columns={"owner_fees": "fees"}),),
    stores=(Postgres(),),
)
owners = TableView(
    name="owners", key="owner", columns={"fees": add({Packed: "fee"}), "last": last({Packed: "crate_id"})},
    stores=(Postgres(),),
)  # fmt: skip
goods = TableView(
    name="goods",
    key=item("lines", "sku"),
    key_name="sku",
    columns={"pieces": add({Packed: item("lines", "pieces")})},
    each={Packed: "lines"},
    stores=(Postgres(),),
)


def test_rows_follow_from_events_in_the_order_in_which_they_are_given() -> None:
    assert rows_of(owners, packed("C1", 2), packed("C2", 5), packed("C1", 1), packed("C3", 9, "Bob")) == {
        "Ada": {"owner": "Ada", "fees": 8, "last": "C1"},
        "Bob": {"owner": "Bob", "fees": 9, "last": "C3"},
    }
    assert rows_of(owners) == {}


def test_items_of_a_list_make_rows_of_their_own() -> None:
    rows = rows_of(goods, packed("C1", tea=2, salt=1), packed("C2", tea=3))
    assert rows == {"tea": {"sku": "tea", "pieces": 5}, "salt": {"sku": "salt", "pieces": 1}}


def test_deleted_rows_are_out_of_sight_and_times_are_as_the_api_shows_them() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    rows = rows_of(crates, packed("C1"), at(noon, packed("C2")), Emptied(crate_id="C1", owner="Ada"), packed("C3"))
    assert {key: row["at"] for key, row in rows.items()} == dict.fromkeys(("C2", "C3"), "2026-05-01T12:00:00.000Z")


def test_lookups_show_columns_of_other_views() -> None:
    events = packed("C1", 2), packed("C2", 3), packed("C3", 4, "Bob"), packed("C4", 1)
    assert "owner_fees" not in rows_of(crates, *events)["C1"]
    rows = rows_of(crates, *events, others=(owners,))
    assert {key: row["owner_fees"] for key, row in rows.items()} == {"C1": 6, "C2": 6, "C3": 4, "C4": 6}
    few = replace(owners, where={Packed: at_least("fee", 4)})
    shown = rows_of(crates, *events, others=(few,))
    assert {key: row["owner_fees"] for key, row in shown.items()} == {"C1": None, "C2": None, "C3": 4, "C4": None}
    with pytest.raises(ValueError, match='"owners", which is not a declared view'):
        rows_of(crates, *events, others=(goods,))


def test_what_an_older_version_recorded_counts_as_the_current_one() -> None:
    old = {"crate_id": "C1", "shop": "Ada", "lines": [{"sku": "tea", "pieces": 2}]}
    assert rows_of(owners, recorded(Packed, 1, old)) == {"Ada": {"owner": "Ada", "fees": 0, "last": "C1"}}
    with pytest.raises(UnreadableEvent):
        rows_of(owners, recorded(Packed, 1, {"crate_id": "C1", "shop": 5, "lines": []}))


def test_an_event_that_the_view_cannot_read_is_no_silent_nothing() -> None:
    older = type("Packed", (Event,), {"__annotations__": {"crate_id": str, "owner": str}}, type="crate.packed")
    behind = TableView(name="behind", key="owner", columns={"n": count(older)}, stores=(Postgres(),))
    with pytest.raises(ValueError, match=r'"behind" cannot read the event.*newer version of the code'):
        rows_of(behind, packed("C1"))


def test_the_shipped_views_make_rows_of_their_aggregates_events() -> None:
    listed = Listed(**LISTING | {"listing_id": "L1", "description": ""})
    repriced = PriceChanged(listing_id="L1", city="Sacramento", price=58_000, previous_price=59_222)
    (row,) = rows_of(listings, listed, repriced).values()
    assert (row["listing_id"], row["price"]) == ("L1", 58_000)
    withdrawn = Withdrawn(listing_id="L1", city="Sacramento", price=58_000, square_feet=836, under_offer=False)
    assert [*rows_of(streams, listed, repriced, withdrawn)] == ["listing/L1/1", "listing/L1/2", "listing/L1/3"]
    check_any_order(listings, listed, repriced, withdrawn)


def test_any_order_makes_the_same_rows() -> None:
    events = [packed(f"C{number % 4}", number, tea=number, salt=1) for number in range(12)]
    for view in (crates, owners, goods):
        check_any_order(view, *events, Emptied(crate_id="C1", owner="Ada"), packed("C1"), tries=10)


@dataclass(frozen=True)
class Arrival:
    """Wrong: whatever comes later in the order of arrival wins."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        row.update(patch)


@dataclass(frozen=True, eq=False)
class Newest:
    cases: Cases

    def kind(self) -> ColumnType:
        return ColumnType.INTEGER

    def stored(self, name: str, ordering: Ordering) -> Stored:
        field = StateField(name, ColumnType.INTEGER)
        lifted: Mapping[Any, Any] = {case: {name: case_value} for case, case_value in self.cases.items()}
        return Stored(Arrival(field), lifted)


def test_a_fold_that_breaks_the_laws_is_found_and_the_seed_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = TableView(
        name="wrong", key="owner", columns={"newest": Newest(read({Packed: "fee"}))}, stores=(Postgres(),)
    )
    events = [packed(f"C{number}", number) for number in range(6)]
    with pytest.raises(AssertionError, match=r"HEADWATER_SEED=(\d+) repeats it") as failed:
        check_any_order(wrong, *events)
    said = str(failed.value)
    assert "'Ada': in the order of the log {'owner': 'Ada', 'newest': 5}" in said
    monkeypatch.setenv("HEADWATER_SEED", said.partition("HEADWATER_SEED=")[2].split()[0])
    with pytest.raises(AssertionError) as again:
        check_any_order(wrong, *events)
    assert str(again.value) == said


@dataclass(frozen=True, slots=True)
class Capped(Sum):
    """Wrong: rebuilds would add as the parent does, without the cap."""

    def combine(self, row: State, patch: State) -> None:
        row[self.field.name] = min(10, (row.get(self.field.name) or 0) + (patch.get(self.field.name) or 0))


@dataclass(frozen=True, eq=False)
class CappedTotal(Newest):
    def stored(self, name: str, ordering: Ordering) -> Stored:
        lifted: Mapping[Any, Any] = {case: {name: case_value} for case, case_value in self.cases.items()}
        return Stored(Capped(StateField(name, ColumnType.INTEGER)), lifted)


def test_a_monoid_that_combines_in_another_way_than_the_one_it_inherits_from_is_refused() -> None:
    said = 'column "capped": its monoid Capped inherits from Sum, as which rebuilds combine it, and overrides combine'
    with pytest.raises(ViewDeclarationError, match=said):
        TableView("wrong", "owner", {"capped": CappedTotal(read({Packed: "fee"}))}, (Postgres(),))


def test_a_view_of_every_event_takes_any() -> None:
    every = TableView(
        name="every", key=envelope("stream"), key_name="stream", columns={"n": count(EVERY)}, stores=(Postgres(),)
    )
    assert rows_of(every, packed("C1"), packed("C2"), Emptied(crate_id="C1", owner="Ada")) == {
        "crate/C1": {"stream": "crate/C1", "n": 2},
        "crate/C2": {"stream": "crate/C2", "n": 1},
    }


def test_the_contract_of_views_finds_what_breaks_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = TableView(
        name="wrong", key="owner", columns={"newest": Newest(read({Packed: "fee"}))}, stores=(Postgres(),)
    )
    declared = ModuleType("declared_views")
    vars(declared).update(wrong=wrong, owners=owners)
    monkeypatch.setitem(sys.modules, "declared_views", declared)
    tests: Any = contracts_of_views("declared_views")
    with pytest.raises(AssertionError, match='"wrong" has other rows'):
        tests.test_any_order_makes_the_same_rows(view=wrong)


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ((), "no view in no module"),
        (("orders",), "no view in orders"),
        (("headwater.projections.views",), '"streams" handles every event'),
    ],
)
def test_a_contract_of_no_view_is_an_error(modules: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        contracts_of_views(*modules)
