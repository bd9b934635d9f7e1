"""Views that count and add up rows of captured tables, in all stores."""

from __future__ import annotations

from eventlog.capturing import Captured, Source
from projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking
from projections.table.conditions import above
from projections.table.expressions import minus
from projections.table.folds import add, average, count, ratio
from projections.table.view import TableView


class Person(Captured, table="public.people", key="id"):
    id: int
    town: str | None
    points: int | None
    spent: int
    is_member: bool


class Shop(Captured, table="public.shops", key=("country", "number")):
    country: str
    number: int
    town: str
    staff: int


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
COUNTED_VIEWS = {view.name: view for view in (PER_TOWN, BY_MEMBERSHIP)}
