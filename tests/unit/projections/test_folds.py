"""Declarations: what each fold refuses, what a view filters and explodes, and that parts of a history always agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.eventlog.envelope import Envelope, Position
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.reading import reader
from headwater.projections.stores.declared import Elasticsearch, Postgres
from headwater.projections.table.computations import envelope, equals, field, value
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Expression, Source
from headwater.projections.table.folds import (
    EVERY,
    add,
    approximate_distinct,
    average,
    collect,
    count,
    distinct,
    last,
    lowest,
    maximum,
    members,
    nested,
    top,
)
from headwater.projections.table.items import item
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history
from headwater.projections.testing.rows import check_sources
from tests.contracts.fold_views import (
    BY_PACKED_GROUP,
    BY_SKU,
    FOLD_VIEWS,
    PIECES,
    SKU,
    WITH_OWN_FOLD,
    LineAdded,
    Packed,
    ever,
)
from tests.contracts.view_histories import Put, Taken
from tests.support.seeds import examples

LINES = {"sku": "A", "pieces": 2, "price": 5, "weight": None, "at": None}


def placed(data: Mapping[str, Any], kind: str = "thing.packed", offset: int = 0) -> Source:
    made = Envelope("thing/T/1", kind, "thing/T", datetime(2026, 1, 1, tzinfo=UTC), dict(data), sequence=1)
    return Source(made, Position(0, offset), 1_767_225_600_000, "{}")


def packed(*lines: Mapping[str, Any], **more: Any) -> Source:
    return placed({"thing_id": "T", "group": "g", "text": None, "flag": True, "lines": [*lines], **more})


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(FOLD_VIEWS.values())), st.integers(0, 10_000))
def test_any_split_of_a_history_in_any_order_makes_the_same_rows(view: TableView, seed: int) -> None:
    check_sources(view, history(view, list(view.plan.events.values()), seed, length=40).sources, seed)


def test_each_item_makes_a_patch_of_its_own_row_with_its_own_number() -> None:
    source = packed(LINES, LINES | {"sku": "B"}, LINES | {"pieces": 3})
    made = reader.lift(BY_SKU, source)
    assert [(patch.key, patch.place.number, patch.fields["pieces"]) for patch in made] == [
        ("A", 0, 2),
        ("B", 1, 2),
        ("A", 2, 3),
    ]
    assert BY_SKU.rows_of(source.envelope) == ("A", "B", "A")
    assert BY_PACKED_GROUP.rows_of(source.envelope) == ("g", "g", "g")
    rows = reader.fold(BY_SKU, [source])
    assert (rows["A"]["pieces"], rows["A"]["packed"], rows["B"]["pieces"]) == (5, 2, 2)


def test_events_and_items_that_are_filtered_out_make_no_patch() -> None:
    made = reader.lift(BY_SKU, packed(LINES | {"pieces": 0, "price": 1}, LINES))
    assert [patch.place.number for patch in made] == [1]
    assert reader.lift(BY_PACKED_GROUP, packed(LINES, group="a")) == []


@pytest.mark.parametrize(
    ("lines", "lacking"),
    [
        ([LINES, {"pieces": 1}], ("lines[].sku",)),
        ([LINES, 5], ("lines[].pieces", "lines[].sku")),
        ([LINES | {"pieces": "two"}], ("lines[].pieces",)),
        ({"sku": "A"}, ("lines[].pieces", "lines[].sku")),
        (None, ("lines", "lines[].pieces", "lines[].sku")),
        ([], ()),
    ],
)
def test_an_event_whose_items_lack_what_the_view_reads_is_a_dead_letter(lines: Any, lacking: tuple[str, ...]) -> None:
    source = packed(lines=lines)
    told = f'"thing.packed" lacks a field, or has it with another type: {", ".join(lacking)}' if lacking else None
    assert problem([BY_SKU.plan], source.envelope) == told
    assert reader.lift(BY_SKU, source) == []
    assert BY_SKU.rows_of(source.envelope) == ()


def test_of_two_items_with_one_key_the_later_in_the_list_is_last() -> None:
    (row,) = reader.fold(BY_PACKED_GROUP, [packed(LINES, LINES | {"sku": "B", "price": 9})]).values()
    assert (row["price"], row["pieces"], row["skus"]) == (9, 4, 2)


def test_an_average_counts_what_is_there() -> None:
    view = TableView("means", "group", {"mean": average({Put: "number"})}, (Postgres(),))
    rows = [placed({"thing_id": "T", "group": "g", "number": each}, "thing.put") for each in (1, None, 2)]
    assert reader.fold(view, rows) == {"g": {"group": "g", "mean": 1.5}}


def test_the_fold_that_the_documentation_adds_refuses_what_it_cannot_fold() -> None:
    with pytest.raises(ViewDeclarationError, match="needs booleans, not text"):
        TableView("wrong", "group", {"n": ever({Put: "text"})}, (Postgres(),))
    rows = [placed({"thing_id": "T", "group": "g", "flag": each}, "thing.put") for each in (None, False, True, False)]
    shown = [reader.fold(WITH_OWN_FOLD, rows[: end + 1])["g"]["flagged"] for end in range(4)]
    assert shown == [None, False, True, True]


def _declared(**more: Any) -> Callable[[], TableView]:
    given: dict[str, Any] = {"name": "wrong", "key": "group", "columns": {"n": count(Put)}, "stores": (Postgres(),)}
    return lambda: TableView(**(given | more))


def _column(column: Any) -> Callable[[], TableView]:
    return _declared(columns={"n": column})


TEXT: Expression = field("text")


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (_column(add({Put: "real"})), "only sums of integers"),
        (_column(average({Put: "text"})), "only sums of integers"),
        (_column(maximum({Put: "text"})), "needs numbers, times or dates"),
        (_column(last({Put: "text"}, by="text")), "ordered by a text"),
        (_column(last({Put: "text", Taken: "group"}, by={Put: "number"})), 'leaves out thing.taken'),
        (_column(distinct({Put: "real"})), "cannot be counted by value"),
        (_column(distinct({Put: "text"}, limit=0)), "from 1 to 10000"),
        (_column(approximate_distinct({Put: "at"})), "cannot be counted by value"),
        (_column(members({Put: [(1, "small")]})), "wrap it in"),
        (_column(lowest(members({Put: [(1, "text")]}))), "need integers"),
        (_column(collect({Put: "text"}, limit=5_000)), "from 1 to 1000"),
        (_column(collect({Put: {"a": "text"}, Taken: {"b": "small"}})), "show different fields: a, b"),
        (_column(collect({Put: {"A b": "text"}})), "is not a field name"),
        (_column(collect({})), "at least one event"),
        (_column(top(3, {Put: "text"}, by="flag")), "ordered by a boolean"),
        (_column(nested("sku", {Packed: SKU}, {"sku": count(Packed)})), "is already a column"),
        (_column(nested("sku", {Packed: SKU}, {"n": count(LineAdded)})), 'key has no "thing.line_added"'),
        (_column(nested("sku", {Packed: SKU}, {"n": collect({Packed: PIECES})})), "plain folds only"),  # type: ignore[dict-item]
        (_column(nested("sku", {Packed: item("lines", "colour")}, {"n": count(Packed)})), 'but no "colour"'),
        (_column(nested("sku", {Packed: item("text", "sku")}, {"n": count(Packed)})), "not a list of objects"),
        (_declared(where={Put: TEXT}), "must be a boolean"),
        (_declared(where={Put: equals("text", "number")}), "compares integer with text"),
        (_declared(where={Taken: field("flag")}), 'no column reads "thing.taken"'),
        (_declared(columns={"n": count(EVERY)}, key=envelope("id"), key_name="event", where=equals(TEXT, value("a"))),
         "needs an event class"),
        (_declared(columns={"n": count(Packed)}, each={Packed: "lines"}), "no column reads its items"),
        (_declared(columns={"n": count(Packed)}, each={Packed: "text"}), "not a list of objects"),
        (_column(add({Packed: PIECES})), "nothing goes through them"),
        (_column(collect({Packed: PIECES})), "nothing goes through them"),
        (_declared(columns={"n": add({Packed: PIECES})}, each={Packed: "lines"}, key=item("others", "sku"),
                   key_name="sku"), 'goes through "lines"'),
        (_declared(columns={"n": nested("sku", {Packed: SKU}, {"n": count(Packed)}), "m": add({Packed: PIECES})},
                   each={Packed: "lines"}), "already goes through a list with `each`"),
        (_declared(columns={"n": collect({Put: "text"})}, stores=(Elasticsearch(facets=("n",)),)), "it is a list"),
        (_declared(columns={"n": last({Put: "tags"})}, stores=(Elasticsearch(facets=("n",)),)), "which is JSON and"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_declared(declare: Callable[[], TableView], problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match='view "wrong": ') as refused:
        declare()
    assert problem in str(refused.value)


def test_a_changed_fold_changes_the_fingerprint_and_a_process_does_not() -> None:
    def declared(limit: int, by: str = "number") -> str:
        columns = {"a": collect({Put: "text"}, limit=limit), "b": top(2, {Put: "text"}, by=by)}
        return TableView("prints", "group", columns, (Postgres(),)).fingerprint

    assert declared(3) == declared(3)
    assert len({declared(3), declared(4), declared(3, "small")}) == 3
    # a fingerprint that changes by itself has every deployment rebuild its views
    assert declared(3) == "f5ae7b7fdac3a08d"
