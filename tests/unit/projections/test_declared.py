"""Fingerprints are stored in every deployment: none may change because something in the code was renamed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table import folds
from headwater.projections.table.computations import (
    all_of,
    at_least,
    envelope,
    equals,
    minus,
    negated,
    point,
    value,
    when,
)
from headwater.projections.table.declared import described, storage_word
from headwater.projections.table.folds.fold import EVERY
from headwater.projections.table.items import item
from tests.support.domains import SHIPPED

FINGERPRINTS = {
    "bus_legs@1": "a19bde1e918ad828",
    "bus_positions@1": "506eaf158dc724cc",
    "busiest_lift@1": "e75745e50f1d0b12",
    "category_sales@1": "66ed5da35b822977",
    "city_market@1": "a7d0cc99628a75d7",
    "click_through@1": "ab2693249a2c0dd9",
    "customer_360@2": "e79cb869a73c34fe",
    "daily_sellers@2": "f8a5b8a918dcc80a",
    "distant_payments@2": "bcbd452a94a9d922",
    "hourly_views@1": "b887e098aabeae29",
    "large_order_lines@1": "b869ca4913b215a4",
    "lift_rides@1": "24b6d097f6fa921c",
    "listing_card@1": "27dda77c5e9ef4d6",
    "listing_search@1": "c51400e7d040ff2c",
    "listings@1": "548f81a106f4883c",
    "membership_tiers@1": "d77391882f78b300",
    "orders_by_status@2": "41fda5620ac5a593",
    "page_views@1": "8afc9b55faa9150b",
    "product_search@2": "d40b3ad24ee43b5b",
    "rapid_payments@2": "a36547b167f823a2",
    "record_payments@1": "d2497dd3dd3338f6",
    "sales_per_minute@1": "fbe1a89090a9bb80",
    "sales_per_minute_late@1": "3da8b681e44b815d",
    "search_alerts@1": "f7a6e7ee82b71170",
    "sensor_averages@1": "2a0db0d581fc4bc2",
    "sensor_silences@2": "309c0c6be39d38ad",
    "sensor_silences_late@2": "35511cf6fdf48dc6",
    "streams@1": "74e8374c2c8d3c0b",
    "suspect_checkouts@1": "a82a6efffe7ee4b4",
    "taxed_sales@1": "4bb63771a6991df3",
    "taxed_sales_late@1": "f4c0ae75134e829b",
    "top_sellers@2": "129ae76d29f732bf",
    "visits@1": "1804f7b222c8ce41",
}


class Put(Event, type="thing.put"):
    name: str
    cents: int
    north: float
    east: float
    flag: bool


def test_the_shipped_views_have_the_fingerprints_that_deployments_know() -> None:
    assert {view.tag: view.fingerprint for view in ViewRegistry.load(SHIPPED).views.values()} == FINGERPRINTS


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (folds.last({Put: "name"}), "Latest(cases={thing.put: Field(name='name')}, highest=True, by=None)"),
        (
            folds.first({Put: "name"}, by="cents"),
            "Latest(cases={thing.put: Field(name='name')}, highest=False, by={thing.put: Field(name='cents')})",
        ),
        (folds.count(EVERY), "Total(cases={EVERY: Value(value=1)})"),
        (folds.maximum({Put: "cents"}), "Bound(cases={thing.put: Field(name='cents')}, highest=True)"),
        (
            folds.average({Put: "cents"}),
            "Derived(folds=[Total(cases={thing.put: Field(name='cents')}), Total(cases={thing.put: "
            "Known(of=Field(name='cents'))})], column_kind=<ColumnType.FLOAT: 'float'>, shown=Quotient)",
        ),
        (
            folds.lowest(folds.members({Put: [(1, "cents")]})),
            "Derived(folds=[Members(cases={thing.put: [[1, Field(name='cents')]]})], "
            "column_kind=<ColumnType.INTEGER: 'integer'>, shown=Edge({'highest': False}))",
        ),
        (
            folds.distinct(folds.members({Put: [(1, "cents")]})),
            "Derived(folds=[Members(cases={thing.put: [[1, Field(name='cents')]]})], "
            "column_kind=<ColumnType.INTEGER: 'integer'>, shown=Held)",
        ),
        (
            folds.distinct({Put: "name"}, limit=7),
            "Derived(folds=[Seen(cases={thing.put: Field(name='name')}, limit=7)], "
            "column_kind=<ColumnType.INTEGER: 'integer'>, shown=Number)",
        ),
        (
            folds.approximate_distinct({Put: "name"}),
            "Derived(folds=[Sketched(cases={thing.put: Field(name='name')})], "
            "column_kind=<ColumnType.INTEGER: 'integer'>, shown=Estimate)",
        ),
        (
            folds.collect({Put: "name"}, limit=3),
            "Derived(folds=[Listed(cases={thing.put: {'_value': Field(name='name')}}, limit=3, highest=True, "
            "by=None)], column_kind=<ColumnType.LIST: 'list'>, shown=Values({'best_first': False, 'names': []}))",
        ),
        (
            folds.nested("sku", {Put: item("lines", "sku")}, {"n": folds.add({Put: item("lines", "n")})}),
            "Derived(folds=[Parts(key_name='sku', key={thing.put: Item(list='lines', name='sku')}, "
            "columns={'n': Total(cases={thing.put: Item(list='lines', name='n')})}, deleted_by=[], restored_by=[], "
            "limit=100)], column_kind=<ColumnType.LIST: 'list'>, shown=Values({'names': ['sku', 'n']}))",
        ),
        (envelope("time"), "FromEnvelope(name='time')"),
        (point("north", "east"), "Point(latitude=Field(name='north'), longitude=Field(name='east'))"),
        (
            when("flag", minus("cents", 1), value(0)),
            "When(condition=Field(name='flag'), then=Arithmetic(operator='-', left=Field(name='cents'), "
            "right=Value(value=1)), otherwise=Value(value=0))",
        ),
        (
            all_of(negated("flag"), at_least("cents", 5), equals("name", value("it"))),
            "Together(word='and', parts=[Negation(of=Field(name='flag')), Comparison(operator='>=', "
            "left=Field(name='cents'), right=Value(value=5)), Comparison(operator='=', left=Field(name='name'), "
            "right=Value(value='it'))])",
        ),
        ("listing_id", "'listing_id'"),
    ],
    ids=lambda each: each.split("(")[0] if isinstance(each, str) else "",
)
def test_every_word_of_a_declaration_is_stored_as_it_always_was(declared: object, text: str) -> None:
    assert described(declared) == text


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

    assert described(Ever({Put: "flag"})).endswith("Ever(cases={thing.put: 'flag'})")
