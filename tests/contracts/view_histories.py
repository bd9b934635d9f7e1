"""Events that bring a value of every type, and views with every fold over them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated
from uuid import UUID

from pydantic import Field

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.computations import envelope, minus, negative, point, when
from headwater.projections.table.computations import field as read
from headwater.projections.table.folds import add, count, first, highest, last, lowest, maximum, members, minimum, ratio
from headwater.projections.table.view import TableView
from tests.support.recording import recording


class Put(Event, type="thing.put"):
    """Brings a value of every type; all but the ids may be null."""

    thing_id: str
    group: str
    text: str | None
    number: int | None
    small: int
    real: float | None
    flag: bool | None
    at: datetime | None
    tags: list[str] | None
    latitude: float | None
    longitude: float | None
    price: Annotated[Decimal, Field(max_digits=12, decimal_places=2)] | None
    due: date | None
    reference: UUID | None


class Taken(Event, type="thing.taken"):
    """Takes back."""

    thing_id: str
    group: str
    small: int
    flag: bool


class Removed(Event, type="thing.removed"):
    """Puts the row out of sight."""

    thing_id: str
    group: str


class Restored(Event, type="thing.restored"):
    """Brings it back."""

    thing_id: str
    group: str
    text: str


thing = recording("thing", "thing_id", Put, Taken, Removed, Restored)


def every_fold(name: str, key: str) -> TableView:
    """A view with every fold over every type, in all stores."""
    total, number = add({Put: "small", Taken: negative("small")}), count(Put, Taken)
    held = members({Put: [(1, "small")], Taken: [(-1, "small")]})
    return TableView(
        name=name,
        key=key,
        columns={
            "text": last({Put: "text", Restored: "text"}),
            "first_text": first({Put: "text"}),
            "number": last({Put: "number"}),
            "real": last({Put: "real"}),
            "flag": last({Put: "flag", Taken: "flag"}),
            "at": last({Put: "at"}),
            "tags": last({Put: "tags"}),
            "place": last({Put: point("latitude", "longitude")}),
            "stream": last({Put: envelope("stream"), Removed: envelope("stream")}),
            "total": total,
            "events": number,
            "changed": add({Put: minus("small", 3), Taken: when(read("flag"), 1, 0)}),
            "most": maximum({Put: "real"}),
            "least": minimum({Put: "number"}),
            "latest": maximum({Put: "at"}),
            "price": last({Put: "price"}),
            "paid": add({Put: "price"}),
            "dearest": maximum({Put: "price"}),
            "due": last({Put: "due"}),
            "first_due": minimum({Put: "due"}),
            "reference": last({Put: "reference"}),
            "lowest": lowest(held),
            "highest": highest(held),
            "average": ratio(total, number),
        },
        deleted_by=(Removed,),
        restored_by=(Restored,),
        stores=(Postgres(indexes=(("text", "number"),)), Elasticsearch(text=("text",), facets=("flag",)), Cache()),
    )


def some_folds(name: str, key: str) -> TableView:
    """A view with a fold of each shape, in all stores: what needs no more is spared most of Spark's compiling."""
    every = every_fold(name, key)
    columns = ("text", "tags", "place", "total", "latest", "highest", "price", "paid", "due", "reference")
    return replace(
        every,
        columns={name: every.columns[name] for name in columns},
        stores=(Postgres(indexes=(("text", "total"),)), Elasticsearch(text=("text",)), Cache()),
    )


BY_THING = every_fold("by_thing", "thing_id")
BY_GROUP = every_fold("by_group", "group")
