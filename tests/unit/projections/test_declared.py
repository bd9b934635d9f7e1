"""Fingerprints are stored in every deployment: none may change because something in the code was renamed.

Declarations are stored as they are written, and so are their changes shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from headwater.commands.declaring.aggregate import Event
from headwater.projections.generations.registry.generation import declaration_changes
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Cache, Elasticsearch
from headwater.projections.table.declared import described, storage_word
from headwater.projections.table.folds.fold import EVERY
from headwater.samples.shop.source import Customer
from tests.contracts import fold_views, view_histories
from tests.contracts.fold_views import Packed
from tests.contracts.view_histories import Put, Removed, Taken
from tests.support.domains import SHIPPED

FINGERPRINTS = {
    "bus_legs@1": "a19bde1e918ad828",
    "bus_positions@1": "506eaf158dc724cc",
    "busiest_lift@1": "e75745e50f1d0b12",
    "category_sales@1": "1ab3cb6be9d54b79",
    "city_market@1": "e4804440a70dd3fc",
    "click_through@1": "ab2693249a2c0dd9",
    "customer_360@2": "6cf70744d0354510",
    "daily_sellers@2": "f8a5b8a918dcc80a",
    "distant_payments@2": "bcbd452a94a9d922",
    "hourly_views@1": "b887e098aabeae29",
    "large_order_lines@1": "b869ca4913b215a4",
    "lift_rides@1": "24b6d097f6fa921c",
    "listing_card@1": "4056c913d701ca01",
    "listing_search@1": "ab6911779b88d3a6",
    "listings@1": "4622dec625c36f51",
    "membership_tiers@1": "d77391882f78b300",
    "orders_by_status@2": "045da8e055875c3f",
    "page_views@1": "8afc9b55faa9150b",
    "product_search@2": "f1cb078722d8344b",
    "rapid_payments@2": "a36547b167f823a2",
    "record_payments@1": "d2497dd3dd3338f6",
    "sales_per_minute@1": "fbe1a89090a9bb80",
    "sales_per_minute_late@1": "3da8b681e44b815d",
    "search_alerts@1": "f7a6e7ee82b71170",
    "sensor_averages@1": "2a0db0d581fc4bc2",
    "sensor_silences@2": "309c0c6be39d38ad",
    "sensor_silences_late@2": "35511cf6fdf48dc6",
    "streams@1": "ecb1653ac2bbcd39",
    "suspect_checkouts@1": "a82a6efffe7ee4b4",
    "taxed_sales@1": "4bb63771a6991df3",
    "taxed_sales_late@1": "f4c0ae75134e829b",
    "top_sellers@2": "129ae76d29f732bf",
    "visits@1": "1804f7b222c8ce41",
}


def test_the_shipped_views_have_the_fingerprints_that_deployments_know() -> None:
    assert {view.tag: view.fingerprint for view in ViewRegistry.load(SHIPPED).views.values()} == FINGERPRINTS


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (count(EVERY), "count(EVERY)"),
        ("listing_id", '"listing_id"'),
        (count(Put, Taken), "count(thing.put, thing.taken)"),
        (add({Put: "small", Taken: negative("small")}), 'add({thing.put: "small", thing.taken: negative("small")})'),
        (last({Put: "text"}), 'last({thing.put: "text"})'),
        (first({Put: "text"}, by="at"), 'first({thing.put: "text"}, by={thing.put: "at"})'),
        (last({Put: value("it's \"so\"\n")}), 'last({thing.put: value("it\'s \\"so\\"\\n")})'),
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
    ids=lambda each: each.split("(")[0] if isinstance(each, str) else "",
)  # fmt: skip
def test_a_declaration_is_stored_as_it_is_written(declared: object, text: str) -> None:
    assert described(declared) == text


def test_no_name_of_a_class_of_ours_is_in_any_declaration() -> None:
    views: list[Any] = list(ViewRegistry.load(SHIPPED).views.values())
    views += [
        each for module in (fold_views, view_histories) for each in vars(module).values() if isinstance(each, TableView)
    ]
    ours = ("Total(", "Latest(", "Derived(", "Field(", "Value(", "Members(", "Current(", "Listed(", "Parts(", "Values")
    lines = [line for view in views for line in view.declaration]
    assert [line for line in lines if any(word in line for word in ours)] == []


def test_a_change_shows_what_was_written_before_and_now() -> None:
    def view(column: Any) -> TableView:
        return TableView("boxes", "thing_id", {"n": column}, Postgres())  # type: ignore[arg-type]

    assert declaration_changes(view(count(Put)).declaration, view(count(Put, Taken)).declaration) == [
        "- n=count(thing.put)",
        "+ n=count(thing.put, thing.taken)",
    ]


def test_stores_are_stored_as_they_always_were() -> None:
    assert Postgres(indexes=(("city", "price"),)).declaration == "Postgres(indexes=(('city', 'price'),))"
    assert Elasticsearch(text=("a",), facets=("b", "c")).declaration == "Elasticsearch(text=('a',), facets=('b', 'c'))"
    assert Cache().declaration == "Cache()"


def test_what_is_renamed_keeps_its_word() -> None:
    @storage_word("Old")
    @dataclass(frozen=True)
    class New:
        better: int = field(metadata={"word": "worse"})

    assert described(New(1)) == "Old(worse=1)"


def test_a_fold_of_a_users_own_may_have_no_word() -> None:
    @dataclass(frozen=True)
    class Ever:
        cases: dict[type[Event], str]

    assert described(Ever({Put: "flag"})).endswith('Ever(cases={thing.put: "flag"})')
