"""Stored declarations are shown as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import (
    Postgres,
    TableView,
    add,
    all_of,
    any_of,
    approximate_distinct,
    average,
    collect,
    count,
    current,
    differs,
    distinct,
    envelope,
    equals,
    first,
    highest,
    item,
    last,
    lowest,
    maximum,
    members,
    minimum,
    minus,
    negated,
    negative,
    nested,
    point,
    ratio,
    top,
    value,
    when,
)
from headwater.projections.generations.registry.generation import declaration_changes
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.declared import as_written, described
from headwater.samples.shop.source import Customer
from tests.contracts import fold_views, view_histories
from tests.contracts.fold_views import Packed
from tests.contracts.view_histories import Put, Removed, Taken
from tests.support.domains import SHIPPED


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (count(Put, Taken), "count(thing.put, thing.taken)"),
        (add({Put: "small", Taken: negative("small")}), 'add({thing.put: "small", thing.taken: negative("small")})'),
        (last({Put: "text"}), 'last({thing.put: "text"})'),
        (first({Put: "text"}, by="at"), 'first({thing.put: "text"}, by={thing.put: "at"})'),
        (last({Put: value("it's \"so\"\n")}), None),
        (last({Put: value("sold")}), 'last({thing.put: value("sold")})'),
        (last({Put: envelope("time")}), 'last({thing.put: envelope("time")})'),
        (last({Put: point("latitude", "longitude")}), 'last({thing.put: point("latitude", "longitude")})'),
        (maximum({Put: minus("small", 3)}), 'maximum({thing.put: minus("small", 3)})'),
        (minimum({Put: when(equals("text", value("a")), 1.5, 0)}),
         'minimum({thing.put: when(equals("text", value("a")), 1.5, 0)})'),
        (first({Put: when(all_of("flag", negated("flag")), True, False)}),
         'first({thing.put: when(all_of("flag", negated("flag")), True, False)})'),
        (first({Put: any_of("flag", differs("small", 1))}), 'first({thing.put: any_of("flag", differs("small", 1))})'),
        (ratio(add({Put: "small"}), count(Put)), 'ratio(add({thing.put: "small"}), count(thing.put))'),
        (average({Put: "small"}), 'average({thing.put: "small"})'),
        (lowest(members({Put: [(1, "small")]})), 'lowest(members({thing.put: [[1, "small"]]}))'),
        (highest(members({Put: [(1, "small")]})), 'highest(members({thing.put: [[1, "small"]]}))'),
        (distinct(members({Put: [(1, "small")]})), 'distinct(members({thing.put: [[1, "small"]]}))'),
        (distinct({Put: "text"}, limit=5), 'distinct({thing.put: "text"}, limit=5)'),
        (approximate_distinct({Put: "text"}), 'approximate_distinct({thing.put: "text"})'),
        (collect({Put: "text"}, limit=5, newest=False), 'collect({thing.put: "text"}, limit=5, newest=False)'),
        (top(3, {Put: {"a": "text"}}, by="real"), 'top(3, {thing.put: {"a": "text"}}, by={thing.put: "real"})'),
        (nested("sku", {Packed: item("lines", "sku")}, {"n": count(Packed)}, deleted_by=(Removed,)),
         'nested("sku", {thing.packed: item("lines", "sku")}, {"n": count(thing.packed)}, limit=100, '
         "deleted_by=[thing.removed])"),
        (current(Customer, "name"), 'current(cdc.shop.public.customers, "name")'),
    ],
)  # fmt: skip
def test_a_column_is_shown_as_it_is_written(column: Any, written: str | None) -> None:
    stored = f"n={described(column)}"
    shown = as_written(stored)
    assert written is None or shown == f"n={written}"
    assert shown.startswith("n=")


def every_line() -> list[str]:
    views = list(ViewRegistry.load(SHIPPED).views.values())
    views += [
        each for module in (fold_views, view_histories) for each in vars(module).values() if isinstance(each, TableView)
    ]
    return [line for view in views for line in view.declaration]


def test_no_name_of_a_class_of_ours_is_shown_of_any_view() -> None:
    ours = ("Total(", "Latest(", "Derived(", "Field(", "Value(", "Members(", "Current(", "Listed(", "Parts(")
    shown = [as_written(line) for line in every_line()]
    assert [line for line in shown if any(word in line for word in ours)] == []


@pytest.mark.parametrize(
    "line",
    ["owners@1", "'owner'", "Cache()", "Postgres(indexes=(('a', '-b'),))", "n=Own(", "n=Total(cases=5)", "n=Derived()",
     "n=Total(cases={a.b: Value(value=1)}) x", "n=text", "query 0f", "n=" + "Own(a=" * 5_000 + "1" + ")" * 5_000],
)  # fmt: skip
def test_what_is_written_otherwise_stays_as_it_is(line: str) -> None:
    assert as_written(line) == line


def test_a_change_shows_what_was_written_before_and_now() -> None:
    def view(column: Any) -> TableView:
        return TableView("boxes", "thing_id", {"n": column}, Postgres())  # type: ignore[arg-type]

    assert declaration_changes(view(count(Put)).declaration, view(count(Put, Taken)).declaration) == [
        "- n=count(thing.put)",
        "+ n=count(thing.put, thing.taken)",
    ]


def test_lines_that_are_written_alike_are_shown_as_they_are_stored() -> None:
    before, after = ["n=Field(name='a')"], ['n=Field(name="a")']
    assert declaration_changes(before, after) == ["- n=Field(name='a')", '+ n=Field(name="a")']
