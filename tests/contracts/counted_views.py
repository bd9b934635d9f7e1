"""Views that count and add up rows of captured tables, in all stores."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from headwater.eventlog.capturing import Captured, Source
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from headwater.projections.table.computations import above, any_of, differs, equals, minus, negated, value
from headwater.projections.table.folds import add, average, count, maximum, minimum, ratio
from headwater.projections.table.view import TableView


class Person(Captured, table="public.people", key="id"):
    id: int
    town: str | None
    points: int | None
    spent: int
    is_member: bool
    balance: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)] = None
    fee: Annotated[Decimal, Field(max_digits=20, decimal_places=8)] = Decimal(0)
    joined: date | None = None
    weight: float | None = None
    seen: datetime | None = None


class Shop(Captured, table="public.shops", key=("country", "number")):
    country: str
    number: int
    town: str
    staff: int
    rent: Annotated[Decimal | None, Field(max_digits=35, decimal_places=3)] = None


people = Source("census", (Person, Shop))

PER_TOWN = TableView(
    name="per_town",
    key="town",
    columns={
        "people": count(Person),
        "points": add({Person: "points"}),
        "left": add({Person: minus("points", "spent"), Shop: "staff"}),
        "mean": average({Person: "points"}),
        "share": ratio(add({Person: "spent"}), count(Person, Shop)),
        "places": count(Shop),
    },
    where={Person: above("spent", -3)},
    stores=(Postgres(indexes=(("-people", "town"),)), Elasticsearch(), Cache(rankings=(Ranking("-people"),))),
)
BY_MEMBERSHIP = TableView(
    name="by_membership",
    key="is_member",
    columns={"people": count(Person), "spent": add({Person: "spent"})},
    where=above("spent", 0),
    stores=(Elasticsearch(), Postgres(), Cache()),
)
BALANCES = add({Person: "balance", Shop: "rent"})
MONEY_PER_TOWN = TableView(
    name="money_per_town",
    key="town",
    columns={
        "balance": BALANCES,
        "net": add({Person: minus("balance", "fee")}),
        "mean_fee": average({Person: "fee"}),
        "per_row": ratio(BALANCES, count(Person, Shop)),
        "mixed": add({Person: "points", Shop: "rent"}),
    },
    where={Person: any_of(above("balance", Decimal("-0.01")), negated(above("points", "fee")))},
    stores=(Postgres(indexes=(("-balance",),)), Elasticsearch(), Cache(rankings=(Ranking("-balance"),))),
)
PER_DAY = TableView(
    name="per_day",
    key="joined",
    columns={"people": count(Person), "fees": add({Person: "fee"})},
    stores=(Postgres(), Elasticsearch(), Cache()),
)
PER_BALANCE = TableView(
    name="per_balance",
    key="balance",
    columns={"people": count(Person), "fees": add({Person: "fee"})},
    where=differs("joined", value(date(2026, 1, 1))),
    stores=(Postgres(), Elasticsearch(), Cache()),
)
EDGES_PER_TOWN = TableView(
    name="edges_per_town",
    key="town",
    columns={
        "fewest": minimum({Person: "points"}),
        "most": maximum({Person: "points"}),
        "least_left": minimum({Person: minus("points", "spent"), Shop: "staff"}),
        "dearest": maximum({Person: "balance", Shop: "rent"}),
        "cheapest": minimum({Person: "balance", Shop: "rent"}),
        "first_joined": minimum({Person: "joined"}),
        "lightest": minimum({Person: "weight"}),
        "last_seen": maximum({Person: "seen"}),
        "people": count(Person),
    },
    where={Person: negated(equals("points", 1))},
    stores=(
        Postgres(indexes=(("-dearest",), ("first_joined",))),
        Elasticsearch(facets=("first_joined",)),
        Cache(rankings=(Ranking("-dearest"), Ranking("last_seen"))),
    ),
)
COUNTED = (PER_TOWN, BY_MEMBERSHIP, MONEY_PER_TOWN, PER_DAY, PER_BALANCE, EDGES_PER_TOWN)
COUNTED_VIEWS = {view.name: view for view in COUNTED}
