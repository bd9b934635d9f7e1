"""Views that use every fold of more than one value, `where` and `each`, in all stores."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from commands.declaring.aggregate import Event
from projections.stores.declared import Cache, Elasticsearch, Postgres
from projections.table.conditions import above, all_of, any_of, at_least, at_most, below, differs, equals, negated
from projections.table.expressions import envelope, negative, point, value
from projections.table.expressions import field as read
from projections.table.folds import (
    add,
    approximate_distinct,
    average,
    collect,
    count,
    distinct,
    first,
    last,
    maximum,
    members,
    minimum,
    nested,
    top,
)
from projections.table.items import item
from projections.table.view import TableView
from tests.contracts.exact_views import EXACT_VIEWS
from tests.contracts.view_histories import Put, Removed, Restored, Taken
from tests.support.recording import recording

STORES = (Postgres(), Elasticsearch(), Cache())


class Line(BaseModel):
    """One line of what was packed."""

    sku: str
    pieces: int
    price: int | None
    weight: float | None
    at: datetime | None


class Packed(Event, type="thing.packed"):
    """Brings a list of lines."""

    thing_id: str
    group: str
    text: str | None
    flag: bool
    lines: list[Line]


class LineAdded(Event, type="thing.line_added"):
    """Changes one line."""

    thing_id: str
    group: str
    sku: str
    pieces: int
    price: int | None


class LineDropped(Event, type="thing.line_dropped"):
    """Takes one line out of sight."""

    thing_id: str
    group: str
    sku: str


thing = recording("thing", "thing_id", Put, Taken, Removed, Restored, Packed, LineAdded, LineDropped)

SKU, PIECES, PRICE = item("lines", "sku"), item("lines", "pieces"), item("lines", "price")


def every_list(name: str, key: str) -> TableView:
    """A view with every fold that keeps more than one value."""
    return TableView(
        name=name,
        key=key,
        columns={
            "mean": average({Put: "number", Taken: "small"}),
            "by_real": last({Put: "text"}, by="real"),
            "by_time": first({Put: "number", Taken: "small"}, by={Put: "at", Taken: envelope("time")}),
            "texts": distinct({Put: "text", Restored: "text"}, limit=4),
            "numbers": distinct(members({Put: [(1, "small")], Taken: [(-1, "small")]})),
            "held": distinct(members({Put: [(1, "text")], Restored: [(-1, "text")]})),
            "about": approximate_distinct({Put: "text", Restored: "text"}),
            "about_numbers": approximate_distinct({Put: "number"}),
            "story": collect(
                {
                    Put: {
                        "text": "text",
                        "real": "real",
                        "flag": "flag",
                        "at": "at",
                        "tags": "tags",
                        "place": point("latitude", "longitude"),
                        "sequence": envelope("sequence"),
                    },
                },
                limit=5,
            ),
            "oldest": collect({Put: "number", Taken: "small"}, limit=3, newest=False),
            "best": top(3, {Put: {"text": "text"}}, by="real"),
            "least": top(4, {Put: "text", Restored: "text"}, by={Put: "at", Restored: envelope("time")}, highest=False),
            "lines": nested(
                "sku",
                {Packed: SKU, LineAdded: "sku", LineDropped: "sku"},
                {
                    "pieces": add({Packed: PIECES, LineAdded: negative("pieces")}),
                    "price": last({Packed: PRICE, LineAdded: "price"}),
                    "weight": first({Packed: item("lines", "weight")}),
                    "added": count(LineAdded),
                    "dearest": maximum({Packed: PRICE}),
                    "since": minimum({Packed: item("lines", "at")}),
                    "text": last({Packed: "text"}),
                },
                deleted_by=(LineDropped,),
                restored_by=(LineAdded,),
                limit=4,
            ),
        },
        deleted_by=(Removed,),
        restored_by=(Restored,),
        stores=STORES,
    )


LISTS_BY_THING = every_list("lists_by_thing", "thing_id")
LISTS_BY_GROUP = every_list("lists_by_group", "group")
BY_SKU = TableView(
    name="by_sku",
    key=SKU,
    key_name="sku",
    each={Packed: "lines"},
    where={
        Packed: any_of(all_of("flag", above(PIECES, 0)), negated(at_most(PRICE, 3)), equals("text", value("b"))),
        LineAdded: all_of(below("pieces", 5), differs("group", value("a")), at_least("pieces", -4)),
    },
    columns={
        "pieces": add({Packed: PIECES, LineAdded: "pieces"}),
        "packed": count(Packed),
        "price": last({Packed: PRICE, LineAdded: "price"}),
        "first_thing": first({Packed: "thing_id"}),
        "things": distinct({Packed: "thing_id", LineAdded: "thing_id"}, limit=3),
        "lately": collect({Packed: {"thing": "thing_id", "pieces": PIECES}}, limit=4),
        "dearest": top(2, {Packed: "thing_id"}, by=PRICE),
    },
    deleted_by=(LineDropped,),
    restored_by=(LineAdded,),
    stores=STORES,
)
BY_PACKED_GROUP = TableView(
    name="by_packed_group",
    key="group",
    each={Packed: "lines"},
    where=negated(equals("group", value("a"))),
    columns={
        "pieces": add({Packed: PIECES, Taken: negative("small")}),
        "price": last({Packed: PRICE, LineAdded: "price"}),
        "heaviest": maximum({Packed: item("lines", "weight")}),
        "flag": last({Packed: read("flag"), Taken: "flag"}),
        "skus": approximate_distinct({Packed: SKU, LineAdded: "sku"}),
    },
    stores=STORES,
)


def documented(page: str) -> dict[str, Any]:
    """The names that the Python samples of a page of `docs/` define."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    names: dict[str, Any] = {"__name__": "documented"}
    samples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(samples), page, "exec", dont_inherit=True), names)  # noqa: S102 - our own text
    return names


ever = documented("adding-a-fold.md")["ever"]
WITH_OWN_FOLD = TableView("with_own_fold", "group", {"flagged": ever({Put: "flag", Taken: "flag"})}, STORES)
FOLD_VIEWS = {
    view.name: view for view in (LISTS_BY_THING, LISTS_BY_GROUP, BY_SKU, BY_PACKED_GROUP, WITH_OWN_FOLD, *EXACT_VIEWS)
}
