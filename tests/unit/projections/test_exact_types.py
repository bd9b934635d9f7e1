"""Decimals, dates and UUIDs in table views: their types, what is read of events, and that nothing is rounded."""

from __future__ import annotations

import pickle
import random
from datetime import date
from decimal import Decimal, localcontext
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, condecimal

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import Digits, field_kinds
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.folding.writing import batches
from headwater.projections.reading import reader
from headwater.projections.reading.compiled import compiled
from headwater.projections.stores.declared import Elasticsearch, Postgres
from headwater.projections.table.computations import above, envelope, minus, negative, value
from headwater.projections.table.decimals import decimal_text, from_sortable, sortable_text
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Value
from headwater.projections.table.folds import add, average, last, maximum
from headwater.projections.table.types import ColumnType, common_type, field_types
from headwater.projections.table.view import TableView
from tests.contracts.exact_views import EXACT_BY_GROUP, Refunded
from tests.support.states import differences, expected_states
from tests.support.wrong_values import billed, each_value, in_nullable_fields_and_items
from tests.unit.projections.test_folding import folder_of, states, whole

MONEY = ColumnType.decimal(10, 2)


class Priced(Event, type="probe.priced"):
    probe: str
    bare: Decimal
    long: Annotated[Decimal, Field(max_digits=39, decimal_places=2)]
    places_only: Annotated[Decimal, Field(decimal_places=2)]
    money: condecimal(max_digits=10, decimal_places=2)  # type: ignore[valid-type]
    wide: Decimal = Field(max_digits=38, decimal_places=2)
    real: float
    text: str
    day: date | None
    reference: UUID


def view(**columns: Any) -> TableView:
    return TableView("probes", "probe", columns, (Postgres(),))


def test_the_types_follow_from_what_pydantic_checks() -> None:
    found = field_types(Priced)
    assert found["money"] is MONEY
    assert found["wide"] is ColumnType.decimal(38, 2)
    assert (found["day"], found["reference"]) == (ColumnType.DATE, ColumnType.UUID)
    assert {found[name] for name in ("bare", "long", "places_only")} == {ColumnType.JSON}
    assert view(bare=last({Priced: "bare"})).types["bare"] is ColumnType.JSON
    assert field_kinds(Priced)["money"].form == Digits(10, 2)


def test_a_class_that_is_declared_below_changes_no_type() -> None:
    class Early(BaseModel):
        money: Annotated[Decimal, Field(max_digits=10, decimal_places=2)] | None
        day: date
        later: Later

    before = field_types(Early)

    class Later(BaseModel):
        pass

    Early.model_rebuild(_types_namespace={"Later": Later})
    assert before == field_types(Early)
    assert before["money"] is MONEY


def test_a_type_of_decimals_is_one_object_everywhere() -> None:
    assert ColumnType.decimal(10, 2) is MONEY
    assert ColumnType("decimal(10, 2)") is MONEY
    assert pickle.loads(pickle.dumps({MONEY: 1})) == {MONEY: 1}
    assert (MONEY.name, MONEY.value, MONEY.digits, MONEY.places) == ("DECIMAL(10, 2)", "decimal(10, 2)", 10, 2)
    assert [each for each in ColumnType if each.is_decimal] == []
    with pytest.raises(ValueError, match="38 digits"):
        ColumnType.decimal(39, 2)


@pytest.mark.parametrize("name", ["bare", "long", "places_only"])
@pytest.mark.parametrize(
    "column",
    [
        lambda name: add({Priced: name}),
        lambda name: maximum({Priced: name}),
        lambda name: last({Priced: "text"}, by=name),
        lambda name: last({Priced: minus(name, 1)}),
        lambda name: average({Priced: name}),
    ],
    ids=["add", "maximum", "by", "minus", "average"],
)
def test_a_decimal_without_digits_is_refused_where_a_number_is_needed(name: str, column: Any) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        view(found=column(name))
    assert f"write {name}: Annotated[Decimal, Field(max_digits=12, decimal_places=2)]" in str(refused.value)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (add({Priced: "money"}), "decimal(38, 2)"),
        (add({Priced: negative("money")}), "decimal(38, 2)"),
        (last({Priced: minus("money", 100)}), "decimal(11, 2)"),
        (last({Priced: minus("money", value(Decimal("0.125")))}), "decimal(12, 3)"),
        (maximum({Priced: "money", Refunded: "price"}), "decimal(12, 4)"),
        (last({Priced: value(Decimal("1E+3"))}), "decimal(4, 0)"),
        (last({Priced: value(date(2026, 1, 1))}), "date"),
        (average({Priced: "money"}), "float"),
    ],
)
def test_results_have_digits_for_every_value(column: Any, kind: str) -> None:
    made = TableView("probes", envelope("stream"), {"found": column}, (Postgres(),), key_name="probe")
    assert made.types["found"].value == kind


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (lambda: last({Priced: negative("wide")}), "may give 39 digits"),
        (lambda: last({Priced: minus("money", "real")}), "needs numbers, not decimal(10, 2) and float"),
        (lambda: last({Priced: value(Decimal("Infinity"))}), "finite number"),
        (lambda: last({Priced: value(Decimal(10) ** 38)}), "38 digits"),
        (lambda: add({Priced: "day"}), "adds dates"),
    ],
)
def test_what_could_round_is_refused_when_it_is_declared(column: Any, told: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        view(found=column())
    assert told in str(refused.value)


def test_decimals_are_compared_with_numbers_and_not_with_texts() -> None:
    assert TableView("probes", "probe", {"n": add({Priced: 1})}, (Postgres(),), where=above("money", 5))
    with pytest.raises(ViewDeclarationError, match="compares decimal"):
        TableView("probes", "probe", {"n": add({Priced: 1})}, (Postgres(),), where=above("money", "text"))


def test_types_of_texts_are_in_no_full_text_search() -> None:
    with pytest.raises(ViewDeclarationError, match="is UUID and no text"):
        TableView("probes", "probe", {"r": last({Priced: "reference"})}, (Elasticsearch(text=("r",)),))


def test_each_value_is_read_exactly_or_not_at_all() -> None:
    values = list(each_value())
    sources = [source for source, *_ in values]
    lacking = {
        source.position.offset: f'"bill.billed" lacks a field, or has it with another type: {name}'
        for source, name, form in values
        if form is None
    }
    found = {source.position.offset: problem([EXACT_BY_GROUP.plan], source.envelope) for source in sources}
    assert {offset: reason for offset, reason in found.items() if reason} == lacking
    rows, reasons = whole(EXACT_BY_GROUP, sources)
    assert reasons == lacking
    assert differences(states(EXACT_BY_GROUP, rows), expected_states(EXACT_BY_GROUP, sources)) == []
    shown = reader.fold(EXACT_BY_GROUP, sources)
    for source, name, form in values:
        if form is not None:
            expected = decimal_text(Decimal(form), 4) if name == "price" else form
            assert shown[f"g{source.position.offset}"][name] == expected


def test_a_wrong_value_is_no_null_where_one_is_allowed() -> None:
    wrong = in_nullable_fields_and_items()
    told = {
        source.position.offset: f'"bill.billed" lacks a field, or has it with another type: {name}'
        for source, name in wrong
    }
    assert {source.position.offset: problem([EXACT_BY_GROUP.plan], source.envelope) for source, _ in wrong} == told
    assert whole(EXACT_BY_GROUP, [source for source, _ in wrong]) == ({}, told)


@given(st.lists(st.integers(1 - 10**35, 10**35 - 1), max_size=30))
def test_sums_are_exact_in_any_order_whatever_the_context_of_the_thread(amounts: list[int]) -> None:
    sources = [billed(at, group="g", wide=_text(amount)) for at, amount in enumerate(amounts)]
    with localcontext(prec=3):
        random.Random(1).shuffle(sources)
        (folded,) = folder_of(EXACT_BY_GROUP, sources).views
        found = states(EXACT_BY_GROUP, folded.drain())
        rows = reader.fold(EXACT_BY_GROUP, sources)
    for row in (*found.values(), *rows.values()):
        assert row["wide_sum"] == _text(sum(amounts))
    assert len(rows) == len(found) == bool(amounts)


def _text(unscaled: int) -> str:
    digits = f"{abs(unscaled):011d}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-10]}.{digits[-10:]}"


def test_a_sum_with_more_digits_than_its_column_is_named_and_not_rounded() -> None:
    most = "9" * 25 + "." + "9" * 10
    total = ColumnType.decimal(38, 10)
    row = {"wide_sum": "9" * 28 + "." + "9" * 10}
    monoid = next(monoid for monoid in EXACT_BY_GROUP.layout.monoids if monoid.fields[0].name == "wide_sum")
    assert monoid.fields[0].type is total
    with pytest.raises(OverflowError, match='the sum "wide_sum" has more than the 38 digits'):
        monoid.combine(row, {"wide_sum": most})
    # in bulk, the row is left out, and its key named
    program, unfit = compiled(EXACT_BY_GROUP), set[str]()
    fields = [field.name for field in program.fields]
    wide = [None if name != "wide_sum" else "9" * 29 + "." + "9" * 10 for name in fields]
    fits = [None if name != "wide_sum" else most for name in fields]
    made = list(batches(program, [("wide", wide), ("fits", fits)], unfit))
    made = [key for batch in made for key in batch.column(0).to_pylist()]
    assert (made, unfit) == (["fits"], {"wide"})


def unscaled(digits: int) -> st.SearchStrategy[int]:
    return st.integers(1 - 10**digits, 10**digits - 1)


a_type_with_two_values = st.integers(1, 38).flatmap(
    lambda digits: st.tuples(st.just(digits), st.integers(0, digits), unscaled(digits), unscaled(digits))
)


@given(a_type_with_two_values)
def test_the_sortable_text_sorts_as_the_decimals_do(drawn: tuple[int, int, int, int]) -> None:
    digits, places, *numbers = drawn
    one, other = (Decimal(f"{number}E-{places}") for number in numbers)
    first, second = (sortable_text(each, digits, places) for each in (one, other))
    assert (first < second, first == second) == (one < other, one == other)
    assert from_sortable(first, places) == one


def test_types_together_are_the_widest_decimal_or_none() -> None:
    assert common_type({MONEY, ColumnType.INTEGER}) is ColumnType.decimal(21, 2)
    assert common_type({MONEY, ColumnType.decimal(8, 6)}) is ColumnType.decimal(14, 6)
    assert common_type({MONEY, ColumnType.FLOAT}) is None
    assert common_type({ColumnType.TEXT}) is ColumnType.TEXT
    with pytest.raises(ValueError, match="together need 40 digits"):
        common_type({ColumnType.decimal(38, 0), ColumnType.decimal(2, 2)})


def test_a_constant_is_written_as_it_is_in_every_language() -> None:
    assert Value(Decimal("12.50")).spark(None, {}) == "cast('12.50' as decimal(4,2))"
    assert eval(Value(Decimal("-0.5")).python(None)) == Decimal("-0.5")  # noqa: S307 - our own
    assert Value(UUID(int=5)).spark(None, {}) == "'00000000-0000-0000-0000-000000000005'"
