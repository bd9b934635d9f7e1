"""Looking columns up in other views: what is refused, and what a lookup is no part of."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import Column, collect, last
from headwater.projections.table.lookups import Lookup, looked_up_types
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.replay.rebuild import looked_up_now
from headwater.samples.listings.domain import Listed

SHIPPED = ViewRegistry.load(["listings"]).views
PRICE = {"city_price": "average_price"}


def homes(*lookups: Lookup, **more: Any) -> TableView:
    columns: dict[str, Column] = {name: last({Listed: name}) for name in ("city", "beds")}
    columns["zips"] = collect({Listed: "zip"})
    return TableView("homes", "listing_id", columns, (Postgres(),), lookups=lookups, **more)


@pytest.mark.parametrize(
    ("lookup", "problem"),
    [
        (Lookup("city_market", "city", {}), 'its lookup in "city_market" has no columns'),
        (
            Lookup("city_market", "town", PRICE),
            '"town", which is not a stored column of this view: use one of listing_id',
        ),
        (Lookup("city_market", "beds", PRICE), '"beds", which is integer, not text: use one of listing_id, city'),
        (Lookup("city_market", "zips", PRICE), '"zips", which is list, not text'),
        (Lookup("city_market", "earlier", PRICE), '"earlier", which is not a stored column of this view'),
        (Lookup("city_market", "city", {"beds": "listed"}), 'adds "beds", but this view already has this column'),
        (Lookup("city_market", "city", {"listing_id": "listed"}), 'adds "listing_id", but this view already has'),
        (Lookup("city_market", "city", {"earlier": "listed"}), 'adds "earlier", but this view already has'),
        (Lookup("city_market", "city", {"City price": "listed"}), '"City price" is not a column name'),
    ],
)
def test_what_the_view_alone_shows_to_be_wrong_is_refused_when_it_is_declared(lookup: Lookup, problem: str) -> None:
    with pytest.raises(ViewDeclarationError, match='view "homes": ') as refused:
        homes(Lookup("listings", "listing_id", {"earlier": "zip"}), lookup)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("lookup", "problem"),
    [
        (Lookup("city_markt", "city", PRICE), '"city_markt", which is not a declared view: use one of cities_in'),
        (Lookup("city_market", "city", {"x": "mean"}), '"mean" in "city_market", which has no such column: use one of'),
        (
            Lookup("homes_in_postgres", "city", {"x": "both_price"}),
            'which looks it up in "cities_in_both" itself: use "cities_in_both" instead',
        ),
    ],
)
def test_what_is_looked_up_must_be_there_when_a_process_starts(lookup: Lookup, problem: str) -> None:
    others = [
        ("tests.support.looked_up", view)
        for view in ViewRegistry.load(["listings", "tests.support.looked_up"]).views.values()
    ]
    with pytest.raises(ViewDeclarationError, match='view "homes": it looks up ') as refused:
        ViewRegistry([*others, ("bank.views", homes(lookup))])
    assert problem in str(refused.value)
    assert re.search(r'\(declared in "bank\.views", .*test_lookups\.py:\d+\)$', str(refused.value))


def test_a_package_s_view_looks_up_in_a_shipped_one_and_rows_in_each_other() -> None:
    each_other = Lookup("homes", "city", {"beds_of_it": "beds", "itself": "city"})
    view = homes(Lookup("city_market", "city", PRICE), each_other)
    views = ViewRegistry([*(("shipped", each) for each in SHIPPED.values()), ("mine", view)]).views
    kinds = {"city_price": ColumnType.FLOAT, "beds_of_it": ColumnType.INTEGER, "itself": ColumnType.TEXT}
    assert looked_up_types(view, views) == kinds


def test_a_lookup_is_no_part_of_what_is_stored() -> None:
    with_one, without = homes(Lookup("city_market", "city", PRICE)), homes()
    assert (with_one.fingerprint, with_one.declaration) == (without.fingerprint, without.declaration)
    assert (with_one.types, with_one.layout.fields) == (without.types, without.layout.fields)


def test_what_a_store_indexes_is_stored() -> None:
    with pytest.raises(ViewDeclarationError, match=r'Postgres\(indexes=…\) names the unknown column "city_price"'):
        replace(homes(Lookup("city_market", "city", PRICE)), stores=(Postgres(indexes=(("city_price",),)),))


def test_who_makes_a_view_of_some_events_is_told_what_it_does_not_show_as_of_these() -> None:
    view = homes(Lookup("listings", "listing_id", {"zip_now": "zip"}), Lookup("city_market", "city", PRICE))
    assert looked_up_now("then", view) == (
        '"then" shows city_price, zip_now as they are now: they are looked up in other views'
    )
    assert looked_up_now("then", homes()) == ""
