"""Sums of decimals in the local engine are exact: they are added up as integers, and written as decimals."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from headwater.commands.declaring.aggregate import Event
from headwater.projections.folding.writing import batches, must_fit
from headwater.projections.reading import runtime
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import FoldedView, Folder
from headwater.projections.reading.program import decoders
from headwater.projections.reading.runtime import Unclear, decimal_of_scaled, scaled_decimals_of, sum_of_texts
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.computations import Arithmetic, minus, negative, value, when
from headwater.projections.table.decimals import EXACT, added, decimal_text, exact_decimal
from headwater.projections.table.expressions import Field as Read
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add, count, nested
from headwater.projections.table.view import TableView
from tests.support.seeds import examples
from tests.support.states import expected_states
from tests.support.versioned import source
from tests.unit.projections.test_folding import Record, check

TYPES = [(12, 2, 2), (12, 2, 6), (38, 0, 0), (38, 38, 38), (38, 2, 4), (1, 0, 3), (1, 1, 1), (3, 2, 2)]
ODD = [
    "", ".", "-", ".5", ".50", "5.", "0.", "00.50", "0001.50", "1.2.50", "1..50", "-0.00", "-0", "+1.00", "1_0.00",
    "_1.00", " 1.00", "1.00 ", "1.00\n", "٣.50", "1.٣0", "²1.00", "1e2", "1E+2", "1.25e1", "NaN", "Infinity",
    "1,00", "9" * 38, "-" + "9" * 38, "9" * 39, "0." + "9" * 38, "-0." + "9" * 38, "9" * 36 + ".99",
    "-" + "9" * 36 + ".99", "-Infinity",
    "0.5", "-0.5", "0.10", "9.99", "-9.99", "99.99", "9.995", "12", "0", 0, 1, -7, 10**37, 1.5, -0.0, 0.1, 1e22, 12.345,
]  # fmt: skip


@pytest.mark.parametrize(("digits", "places", "scale"), TYPES)
def test_a_decimal_is_read_as_an_integer_or_not_at_all(
    digits: int, places: int, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "KNOWN_DECIMALS", 5)
    read = scaled_decimals_of.__wrapped__(digits, places, scale)
    for each in ODD * 2:  # at first it knows what it has read
        exact = exact_decimal(each, digits, places)
        if exact is None:
            with pytest.raises(Unclear):
                read(each)
        else:
            assert read(each) == EXACT.scaleb(exact, scale), each
    assert read(None) is None


@given(st.integers(-(10**60), 10**60), st.sampled_from([0, 1, 2, 38]))
@settings(max_examples=examples(200), deadline=None)
def test_the_integer_is_written_as_the_decimal(scaled: int, places: int) -> None:
    assert decimal_of_scaled(scaled, places) == decimal_text(EXACT.scaleb(Decimal(scaled), -places), places)


@given(st.integers(-(10**38), 10**38), st.integers(-(10**38), 10**38), st.sampled_from([0, 2, 38]))
@settings(max_examples=examples(200), deadline=None)
def test_sums_of_tasks_are_added_exactly(one: int, other: int, places: int) -> None:
    left, right = (decimal_of_scaled(each, places) for each in (one, other))
    assert sum_of_texts(left, right, places) == decimal_of_scaled(one + other, places) == added(left, right, places)
    assert sum_of_texts(None, left, places) == left == sum_of_texts(left, 0, places)


class Charged(Event, type="probe.charged"):
    probe: str
    amount: Annotated[Decimal, Field(max_digits=34, decimal_places=2)]
    fine: Annotated[Decimal, Field(max_digits=10, decimal_places=4)] | None
    pieces: int
    is_paid: bool


class Refunded(Event, type="probe.refunded"):
    probe: str
    amount: Annotated[Decimal, Field(max_digits=36, decimal_places=0)]


class Counted(Event, type="probe.counted"):
    probe: str
    month: str
    grains: Annotated[Decimal, Field(max_digits=38, decimal_places=0)]


SUMS = TableView(
    "sums",
    "probe",
    {
        "all": add({Charged: "amount", Refunded: "amount"}),
        "fines": add({Charged: "fine", Refunded: value(Decimal("-0.5"))}),
        "net": add({Charged: minus("amount", "fine"), Refunded: value(7)}),
        "back": add({Charged: negative("amount"), Refunded: value(-1)}),
        "counted": add({Charged: Arithmetic("+", Read("fine"), Arithmetic("*", Read("pieces"), Read("pieces")))}),
        "mixed": add({Charged: "pieces", Refunded: "amount"}),
        "paid": add({Charged: when("is_paid", "amount", Decimal("0.01"))}),
    },
    (Postgres(),),
)
GRAINS = TableView("grains", "probe", {"sum": add({Counted: "grains"})}, (Postgres(),))


def test_sums_of_extreme_values_are_the_references() -> None:
    chance = random.Random(0)
    large = ["9" * 32 + ".99", "-" + "9" * 32 + ".99", "0.01", "-0.01", "1E+31", "12.5", "0", 7, 0.1]
    sources: list[Source] = []
    for number in range(400):
        probe = chance.choice("ab")
        if chance.randrange(3):
            amount, fine = chance.choice(large), chance.choice(["0.0001", "-999999.9999", "1e-4", "12.5", None, 3])
            pieces = chance.choice([2**63 - 1, -(2**63), 0, 1])
            data: dict[str, Any] = {"amount": amount, "fine": fine, "pieces": pieces, "is_paid": chance.random() < 0.5}
            sources.append(source(number, 1, {"probe": probe, **data}, recorded_as="probe.charged"))
        else:
            data = {"amount": chance.choice(["9" * 34, "-" + "9" * 34, "1", "-1"])}
            sources.append(source(number, 1, {"probe": probe, **data}, recorded_as="probe.refunded"))
    check(SUMS, sources)
    charged = [each.envelope.data for each in sources if each.envelope.type == "probe.charged"]
    fines = sum((Decimal(str(each["fine"] or 0)) for each in charged if each["probe"] == "a"), Decimal(0))
    refunds = sum(each.envelope.type == "probe.refunded" and each.envelope.data["probe"] == "a" for each in sources)
    found = expected_states(SUMS, sources)["a"]
    assert Decimal(found["fines"]) == fines - refunds * Decimal("0.5")


def test_a_sum_is_refused_only_with_more_digits_than_its_column_has() -> None:
    most = source(0, 1, {"probe": "a", "month": "", "grains": "9" * 38}, recorded_as="probe.counted")
    for last, fits in (("0", True), ("1", False)):
        one = source(1, 1, {"probe": "a", "month": "", "grains": last}, recorded_as="probe.counted")
        folder = Folder(FoldedView, decoders([GRAINS]), [compiled(GRAINS)])
        folder.add("0", [Record.of(most), Record.of(one)])
        (row,) = folder.views[0].drain().values()
        assert row[0] == str(10**38 - 1 + int(last))
        if fits:
            must_fit("sum", [row[0]], 38)
        else:
            with pytest.raises(ValueError, match='"sum" has more than the 38 digits of its column'):
                must_fit("sum", [row[0]], 38)


BY_PROBE = TableView(
    "by_probe",
    "probe",
    {
        "sum": add({Counted: "grains"}),
        "months": nested("month", {Counted: "month"}, {"sum": add({Counted: "grains"}), "count": count(Counted)}),
    },
    (Postgres(),),
)


def counted(number: int, probe: str, month: str, grains: str) -> Source:
    return source(number, 1, {"probe": probe, "month": month, "grains": grains}, recorded_as="probe.counted")


def test_a_sum_that_has_too_many_digits_for_a_while_ends_no_task() -> None:
    most = "9" * 38
    sources = [
        *(counted(at, "fits", "May", grains) for at, grains in enumerate((most, "1", "-1"))),
        *(counted(at, "wide", "May", most) for at in (3, 4)),
        *(counted(at, "part", "May", most) for at in (5, 6)),
        *(counted(at, "part", "June", f"-{most}") for at in (7, 8)),
    ]
    program = compiled(BY_PROBE)
    together = FoldedView(program)
    for some in (sources[::2], sources[1::2]):
        folder = Folder(FoldedView, decoders([BY_PROBE]), [program])
        folder.add("0", [Record.of(each) for each in some])
        together.take_in(folder.views[0].drain())
    unfit = set[str]()
    made = [row for batch in batches(program, together.made.items(), unfit) for row in batch.to_pylist()]
    assert unfit == {"wide", "part"}
    ((probe, total, months),) = (row.values() for row in made)
    assert (probe, total, months) == ("fits", most, [{"month": "May", "sum": most, "count": 3}])
