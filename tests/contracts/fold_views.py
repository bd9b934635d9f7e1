"""Views that use every fold of more than one value, `where` and `each`, in all stores."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope, Position, encode
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.table.computations import (
    above,
    all_of,
    any_of,
    at_least,
    at_most,
    below,
    differs,
    envelope,
    equals,
    negated,
    negative,
    point,
    value,
)
from headwater.projections.table.computations import field as read
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import (
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
from headwater.projections.table.folds.fold import by_key
from headwater.projections.table.items import item
from headwater.projections.table.view import TableView
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


class Moved(Event, type="thing.moved"):
    """Changes two rows, which may be one."""

    thing_id: str
    from_group: str
    to_group: str
    small: int
    text: str | None
    lines: list[Line]


thing = recording("thing", "thing_id", Put, Taken, Removed, Restored, Packed, LineAdded, LineDropped, Moved)

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

LEFT, ARRIVED = by_key(Moved, "from_group"), by_key(Moved, "to_group")
BETWEEN_GROUPS = TableView(
    name="between_groups",
    key={Put: "group", Removed: "group", Moved: ["from_group", "to_group"]},
    key_name="group",
    where={LEFT: at_least("small", 0)},
    columns={
        "small": add({Put: "small", LEFT: negative("small"), ARRIVED: "small"}),
        "moves": count(Moved),
        "arrived": count(ARRIVED),
        "text": last({Put: "text", LEFT: value("left"), ARRIVED: "text"}),
        "first_text": first({Moved: "text"}),
        "by_small": last({LEFT: "to_group", ARRIVED: "from_group"}, by="small"),
        "most": maximum({ARRIVED: "small"}),
        "held": distinct(members({ARRIVED: [(1, "thing_id")], LEFT: [(-1, "thing_id")]})),
        "groups": distinct({LEFT: "to_group", ARRIVED: "from_group"}, limit=4),
        "about": approximate_distinct({LEFT: "text", ARRIVED: "text"}),
        "story": collect(
            {
                LEFT: {"other": "to_group", "small": negative("small")},
                ARRIVED: {"other": "from_group", "small": "small"},
            },
            limit=4,
        ),
        "largest": top(3, {LEFT: "to_group", ARRIVED: "from_group"}, by="small"),
        "here": nested(
            "thing",
            {LEFT: "thing_id", ARRIVED: "thing_id"},
            {"since": last({ARRIVED: envelope("time")}), "moves": count(LEFT, ARRIVED)},
            deleted_by=(LEFT,),
            restored_by=(ARRIVED,),
            limit=5,
        ),
        "lines": nested(
            "sku",
            {LEFT: SKU, ARRIVED: SKU},
            {"pieces": add({LEFT: negative(PIECES), ARRIVED: PIECES}), "price": last({LEFT: PRICE, ARRIVED: PRICE})},
            limit=4,
        ),
    },
    deleted_by=(Removed, LEFT),
    restored_by=(Put, ARRIVED),
    stores=STORES,
)
ITEMS_AND_MOVES = TableView(
    name="items_and_moves",
    key={Packed: SKU, LineAdded: "sku", Moved: ["to_group", "from_group"]},
    key_name="sku",
    each={Packed: "lines"},
    where={Packed: above(PIECES, 0)},
    columns={
        "pieces": add({Packed: PIECES, LineAdded: "pieces", LEFT: negative("small"), ARRIVED: "small"}),
        "text": last({Packed: "text", LEFT: "text", ARRIVED: "to_group"}),
        "things": collect({Packed: "thing_id", LineAdded: "group", Moved: "from_group"}, limit=4),
    },
    stores=STORES,
)

BY_GROUP_AND_SMALL = TableView(
    name="by_group_and_small",
    key=("group", "small"),
    columns={"events": count(Put, Taken), "flag": last({Put: "flag", Taken: "flag"})},
    stores=(Postgres(indexes=(("group", "-events"),)), Elasticsearch(facets=("group",)), Cache()),
)
MOVES_OF_SMALL = TableView(
    name="moves_of_small",
    key={Put: ("group", "small"), Moved: [("from_group", "small"), ("to_group", "small")]},
    key_name="place",
    columns={"put": count(Put), "arrived": count(by_key(Moved, ("to_group", "small"))), "moves": count(Moved)},
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
_OF_LISTS = (LISTS_BY_THING, LISTS_BY_GROUP, BY_SKU, BY_PACKED_GROUP, BETWEEN_GROUPS, ITEMS_AND_MOVES, WITH_OWN_FOLD)
_VIEWS = (*_OF_LISTS, BY_GROUP_AND_SMALL, MOVES_OF_SMALL, *EXACT_VIEWS)
FOLD_VIEWS = {view.name: view for view in _VIEWS}


def odd_moves() -> list[Source]:
    """Events that change two rows, or that cannot be read, because of one of them or of both."""
    line = {"sku": "A", "pieces": 1, "price": None, "weight": None, "at": None}
    plain: dict[str, Any] = {
        "thing_id": "T", "from_group": "a", "to_group": "b", "small": 1, "text": None, "lines": [line]
    }  # fmt: skip
    odd: list[dict[str, Any]] = [
        {},
        {"to_group": "a"},
        {"from_group": None},
        {"to_group": None},
        {"to_group": 5, "from_group": True},
        {"to_group": 1.5, "from_group": {"a": [1]}},
        {"small": "one"},
        {"small": -1},
        {"lines": [line, {"pieces": 1}]},
        {"from_group": "a/1", "to_group": "a%2F1", "small": 2**62},
        {"from_group": "", "to_group": ""},
    ]
    found = []
    for at, changed in enumerate(odd, 1):
        time = datetime(2026, 1, 1, tzinfo=UTC)
        data = {name: each for name, each in {**plain, **changed}.items() if name != "to_group" or each is not None}
        made = Envelope(f"thing/T/{at}", "thing.moved", "thing/T", time, data, sequence=at)
        found.append(Source(made, Position(0, at), 1_767_323_045_000, encode(made).decode()))
    return found
