"""Keys that are integers, dates, UUIDs or booleans: the key is their text, and each is a column of its type too."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater import Postgres, TableView, count, current
from headwater.commands.declaring.aggregate import Event
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.folding.row_changes import streams_of_row
from headwater.projections.reading.reader import fold
from headwater.projections.table.event_data import problem
from headwater.projections.table.types import ColumnType
from headwater.samples.shop.source import Customer
from headwater.testing import check_any_order, rows_of
from tests.support.numbered import (
    HIGHEST,
    LOWEST,
    NUMBERS,
    Issued,
    Moved,
    balances,
    days,
    invoice,
    issued,
    numbers,
    references,
    sources,
)


class Odd(Event, type="odd.seen"):
    """Has keys of other types."""

    odd_id: str
    number: str
    day: int
    share: float
    flag: bool


def test_the_field_is_a_column_beside_the_text_of_the_key() -> None:
    assert (numbers.key_name, numbers.types["key"], numbers.types["number"]) == (
        "key",
        ColumnType.TEXT,
        ColumnType.INTEGER,
    )
    assert days.types["day"] is ColumnType.DATE and references.types["reference"] is ColumnType.UUID
    assert "number" not in balances.types, "events name it differently"
    assert (numbers.key_order, days.key_order, balances.key_order) == (("number", "key"), ("day", "key"), ("account",))
    given = sources([issued(each, cents=2) for each in (*NUMBERS, 10)])
    assert fold(numbers, given) == {
        str(number): {
            "key": str(number),
            "number": number,
            "cents": 4 if number == 10 else 2,
            "issued": 2 if number == 10 else 1,
        }
        for number in NUMBERS
    }
    assert numbers.rows_of(given[0].envelope) == ("10",)
    assert fold(days, given) == {"2026-03-01": {"key": "2026-03-01", "day": "2026-03-01", "cents": 24}}
    upper = sources([issued(1, reference="ABCDEF00-0000-0000-0000-000000000000")])
    assert list(fold(references, upper)) == ["abcdef00-0000-0000-0000-000000000000"]


def test_a_name_for_the_text_of_the_key() -> None:
    named = TableView("numbered", "number", {"n": count(Issued)}, (Postgres(),), key_name="text")
    assert [*named.types] == ["text", "number", "n"]
    assert [*named.named("numbered_then").types] == [*named.types]
    flagged = TableView("flagged", "flag", {"n": count(Odd)}, (Postgres(),))
    assert [*flagged.types] == ["key", "flag", "n"]


@pytest.mark.parametrize(
    ("number", "is_read"),
    [
        *((each, True) for each in (LOWEST, HIGHEST, 0, -1)),
        *((each, False) for each in (HIGHEST + 1, LOWEST - 1)),
        *((each, False) for each in (True, 1.0, 1.5, "1", None)),
    ],
)
def test_only_integers_of_64_bits_are_keys_and_other_events_are_dead_letters(number: Any, is_read: bool) -> None:
    (given,) = sources([issued(number)])
    reason = problem([numbers.plan], given.envelope)
    assert (reason is None) is is_read
    assert list(fold(numbers, [given])) == ([str(number)] if is_read else [])


@pytest.mark.parametrize("day", ["2026-02-29", "20260301", "2026-03-01T00:00:00Z", "", None, 5])
def test_what_is_no_day_is_no_key(day: Any) -> None:
    (given,) = sources([issued(1, day=day)])
    assert problem([days.plan], given.envelope) is not None
    assert fold(days, [given]) == {}


def test_an_event_changes_several_rows_that_integers_name() -> None:
    given = sources(
        [
            issued(-5, 100),
            {"from_number": -5, "to_number": 7, "cents": 30},
            {"from_number": 7, "to_number": 7, "cents": 1},
        ]
    )
    assert fold(balances, given) == {
        "-5": {"account": "-5", "cents": 70, "moves": 1},
        "7": {"account": "7", "cents": 30, "moves": 3},
    }
    assert balances.rows_of(given[1].envelope) == ("-5", "7")
    assert [*balances.key_fields(Moved)] == [{"from_number"}, {"to_number"}]
    assert streams_of_row(numbers, "7", [invoice]) is None, "the log tells"


INTEGERS = st.integers(LOWEST, HIGHEST)


@given(st.lists(st.tuples(INTEGERS, st.integers(0, 9)), max_size=20))
@example([(0, 1), (-0, 2), (LOWEST, 3), (HIGHEST, 4)])
def test_each_integer_has_one_row(given: list[tuple[int, int]]) -> None:
    rows = fold(numbers, sources([issued(number, cents) for number, cents in given]))
    sums: dict[int, int] = {}
    for number, cents in given:
        sums[number] = sums.get(number, 0) + cents
    assert {row["number"]: row["cents"] for row in rows.values()} == sums
    assert all(key == row["key"] == str(row["number"]) for key, row in rows.items())


@pytest.mark.parametrize("seed", range(3))
def test_rows_do_not_depend_on_the_order_of_patches(seed: int) -> None:
    chance = random.Random(seed)
    given = [
        Issued(
            invoice_id=f"I{number}",
            number=chance.choice(NUMBERS),
            day=date(2026, 1, 1) + timedelta(days=chance.randrange(3)),
            reference=UUID(int=chance.randrange(3)),
            cents=number,
        )
        for number in range(30)
    ]
    for view in (numbers, days, references, balances):
        check_any_order(view, *given)
    assert rows_of(numbers, *given).keys() == {str(each.number) for each in given}


class Listed(Event, type="odd.listed"):
    """Has no such field."""

    odd_id: str


def _view(key: Any, *events: type[Event], **changes: Any) -> TableView:
    columns = changes.pop("columns", {"n": count(*events)})
    return TableView("tried", key, columns, (Postgres(),), **changes)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: _view("share", Odd), "its key must be a field with a text, an integer, a boolean, a date or a UUID"),
    (
        lambda: _view("number", Issued, Odd),
        "its key is integer in invoice.issued and text in odd.seen: give all events",
    ),
    (lambda: _view("day", Issued, Odd), "its key is date in invoice.issued and integer in odd.seen"),
    (
        lambda: _view({Issued: "number", Odd: "number"}, Issued, Odd, key_name="n_key"),
        "its key is integer in invoice.issued and text in odd.seen: give all events a key of one type",
    ),
    (lambda: _view("number", Issued, Listed), 'has no field "number"'),
    (lambda: _view("number", Issued, key_name="number"), 'set key_name="…"'),
    (lambda: _view("number", Issued, columns={"key": count(Issued)}), '"key" is '),
    (lambda: _view("number", Issued, columns={"number": count(Issued)}), 'the key "number" is already a column'),
    (
        lambda: _view("number", Issued, columns={"n": count(Issued), "name": current(Customer, "name")}),
        "rows of captured tables have their own key",
    ),
    (lambda: _view(("number",), Issued), "write the one name alone, or several"),
]


@pytest.mark.parametrize(("declare", "said"), MISTAKES)
def test_what_cannot_work_is_refused_when_it_is_declared(declare: Callable[[], Any], said: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        declare()
    assert said in str(refused.value)
