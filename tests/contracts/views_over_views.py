"""A view with values of most types in a topic, views over its rows, in all stores, and one over such a view."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from headwater.commands.declaring.view_rows import ViewRow
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres, Ranking, Topic
from headwater.projections.table.computations import above, minus
from headwater.projections.table.folds import add, average, count, current, maximum, minimum
from headwater.projections.table.rows import Deleted
from headwater.projections.table.view import TableView
from tests.contracts.view_histories import some_folds

FOLLOWED = replace(some_folds("followed", "thing_id"), stores=(Postgres(), Topic()))


class Followed(ViewRow, view="followed"):
    text: str | None
    total: int | None
    highest: int | None
    latest: datetime | None
    price: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)]
    paid: Annotated[Decimal | None, Field(max_digits=38, decimal_places=2)]
    due: date | None
    reference: UUID | None
    tags: list[str] | None
    place: dict[str, Any] | None


PER_DUE = TableView(
    name="per_due",
    key="due",
    columns={
        "things": count(Followed),
        "total": add({Followed: "total"}),
        "left": add({Followed: minus("total", "highest")}),
        "prices": add({Followed: "price"}),
        "mean": average({Followed: "price"}),
        "dearest": maximum({Followed: "price"}),
        "cheapest": minimum({Followed: "price"}),
        "latest": maximum({Followed: "latest"}),
        "least": minimum({Followed: "total"}),
    },
    stores=(Postgres(indexes=(("-things",),)), Elasticsearch(), Cache(rankings=(Ranking("-things"),)), Topic()),
)
PER_PRICE = TableView(
    name="per_price",
    key="price",
    columns={"things": count(Followed), "paid": add({Followed: "price"})},
    where={Followed: above("total", 0)},
    stores=(Postgres(), Elasticsearch(), Cache()),
)
COPIED = TableView(
    name="copied",
    key="thing_id",
    columns={name: current(Followed, name) for name in Followed.columns},
    deleted_by=(Deleted(Followed),),
    stores=(Postgres(), Elasticsearch(), Cache()),
)


class DueDay(ViewRow, view="per_due"):
    things: int
    prices: Annotated[Decimal | None, Field(max_digits=38, decimal_places=2)]


PER_NUMBER = TableView(
    name="per_number",
    key="things",
    columns={"days": count(DueDay), "prices": add({DueDay: "prices"})},
    stores=(Postgres(), Cache()),
)
OVER_VIEWS = {view.name: view for view in (PER_DUE, PER_PRICE, COPIED)}
