"""A view with every fold over decimals, dates and UUIDs, of several numbers of digits, in all stores."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from headwater.projections.table.computations import (
    above,
    all_of,
    any_of,
    at_least,
    differs,
    minus,
    negated,
    negative,
    value,
    when,
)
from headwater.projections.table.computations import field as read
from headwater.projections.table.folds import (
    add,
    average,
    collect,
    count,
    first,
    last,
    maximum,
    minimum,
    nested,
    ratio,
    top,
)
from headwater.projections.table.items import item
from headwater.projections.table.view import TableView
from tests.support.recording import recording

Money = Annotated[Decimal, Field(max_digits=10, decimal_places=2)]
Rate = Annotated[Decimal, Field(max_digits=5, decimal_places=5)]
Wide = Annotated[Decimal, Field(max_digits=38, decimal_places=10)]
Fine = Annotated[Decimal, Field(max_digits=18, decimal_places=12)]


class Charge(BaseModel):
    """One line of a bill."""

    sku: str
    cost: Money
    rate: Rate | None
    on: date | None


class Billed(Event, type="bill.billed"):
    """Brings decimals of every shape; all but the price may be null."""

    thing_id: str
    group: str
    price: Money
    fee: Fine | None
    rate: Rate | None
    wide: Wide | None
    whole: Annotated[Decimal, Field(max_digits=20, decimal_places=0)] | None
    number: int
    flag: bool
    due: date
    settled: date | None
    reference: UUID
    charges: list[Charge]


class Refunded(Event, type="bill.refunded"):
    """Has another number of places."""

    thing_id: str
    group: str
    price: Annotated[Decimal, Field(max_digits=12, decimal_places=4)]
    number: int | None


class Voided(Event, type="bill.voided"):
    """Deletes."""

    thing_id: str
    group: str


class Reopened(Event, type="bill.reopened"):
    """Brings back."""

    thing_id: str
    group: str


bill = recording("bill", "thing_id", Billed, Refunded, Voided, Reopened)

SPENT, BILLS = add({Billed: "price", Refunded: negative("price")}), count(Billed, Refunded)
EXACT_BY_GROUP = TableView(
    name="exact_by_group",
    key="group",
    columns={
        "price": last({Billed: "price", Refunded: "price"}),
        "first_fee": first({Billed: "fee"}),
        "rate": last({Billed: "rate"}, by="price"),
        "cheapest_rate": first({Billed: "rate"}, by={Billed: "wide"}),
        "wide": last({Billed: "wide"}),
        "whole": last({Billed: "whole"}),
        "spent": SPENT,
        "wide_sum": add({Billed: "wide"}),
        "rates": add({Billed: "rate"}),
        "mixed": add({Billed: "price", Refunded: "number"}),
        "left": last({Billed: minus("price", "fee")}),
        "rest": last({Billed: minus("whole", 5)}),
        "after": add({Billed: when(above("price", Decimal("12.5")), "price", 0)}),
        "bills": BILLS,
        "mean": average({Billed: "fee"}),
        "mean_spent": ratio(SPENT, BILLS),
        "most": maximum({Billed: "price", Refunded: "price"}),
        "least": minimum({Billed: "wide"}),
        "due": last({Billed: "due"}),
        "first_due": minimum({Billed: "due"}),
        "last_settled": maximum({Billed: "settled"}),
        "reference": last({Billed: "reference"}, by="due"),
        "lately": collect({Billed: {"price": "price", "due": "due", "bill": "reference", "rate": "rate"}}, limit=4),
        "dearest": top(3, {Billed: {"price": "price", "bill": "reference"}}, by="wide"),
        "charges": nested(
            "sku",
            {Billed: item("charges", "sku")},
            {
                "cost": add({Billed: item("charges", "cost")}),
                "rate": last({Billed: item("charges", "rate")}),
                "highest": maximum({Billed: item("charges", "cost")}),
                "on": minimum({Billed: item("charges", "on")}),
            },
        ),
    },
    where={
        Billed: any_of(
            all_of(at_least("price", "number"), differs("due", value(date(2026, 1, 1)))),
            negated(above("wide", "price")),
            read("flag"),
        )
    },
    deleted_by=(Voided,),
    restored_by=(Reopened,),
    stores=(Postgres(indexes=(("due", "-spent"),)), Elasticsearch(facets=("price", "due", "reference")), Cache()),
)
EXACT_BY_SKU = TableView(
    name="exact_by_sku",
    key=item("charges", "sku"),
    key_name="sku",
    each={Billed: "charges"},
    where=above(item("charges", "cost"), -100),
    columns={
        "cost": add({Billed: item("charges", "cost")}),
        "rate": maximum({Billed: item("charges", "rate")}),
        "on": last({Billed: item("charges", "on")}),
    },
    stores=(Postgres(), Elasticsearch(), Cache()),
)
EXACT_BY_DUE = TableView(
    name="exact_by_due",
    key=("group", "due", "reference"),
    columns={"price": add({Billed: "price"}), "latest_rate": last({Billed: "rate"})},
    stores=(Postgres(), Elasticsearch(), Cache(rankings=(Ranking("-price", within=("due",)),))),
)
EXACT_BY_NUMBER = TableView(
    name="exact_by_number",
    key="number",
    columns={"price": add({Billed: "price"}), "bills": count(Billed), "due": last({Billed: "due"})},
    stores=(Postgres(), Elasticsearch(facets=("number",)), Cache(rankings=(Ranking("-number"),))),
)
EXACT_BY_DAY = TableView(
    name="exact_by_day",
    key="due",
    key_name="day",
    columns={"bills": count(Billed), "latest": last({Billed: "reference"}), "most": maximum({Billed: "number"})},
    stores=(Postgres(), Elasticsearch(), Cache()),
)
EXACT_VIEWS = (EXACT_BY_GROUP, EXACT_BY_SKU, EXACT_BY_DUE, EXACT_BY_NUMBER, EXACT_BY_DAY)
