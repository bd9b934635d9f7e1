"""The views that the bench `replay_lists` rebuilds, as a user's module declares them."""

from __future__ import annotations

from headwater.commands.declaring.aggregate import Event
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import add, average, count, distinct, maximum, nested, top
from headwater.projections.table.view import TableView
from tests.support.recording import recording


class Flown(Event, type="flight.flown"):
    route: str
    carrier: str
    tail: str
    delay_minutes: int
    air_minutes: int


flight = recording("flight", "carrier", Flown)
bench_routes = TableView(
    name="bench_routes",
    key="route",
    columns={
        "flights": count(Flown),
        "planes": distinct({Flown: "tail"}, limit=1_000),
        "average_delay": average({Flown: "delay_minutes"}),
        "most_delayed": top(10, {Flown: {"carrier": "carrier", "delay": "delay_minutes"}}, by="delay_minutes"),
        "carriers": nested(
            "carrier",
            {Flown: "carrier"},
            {
                "flights": count(Flown),
                "air_minutes": add({Flown: "air_minutes"}),
                "longest": maximum({Flown: "air_minutes"}),
            },
        ),
    },
    stores=(Postgres(),),
)
bench_plain_routes = TableView(
    name="bench_plain_routes",
    key="route",
    columns={"flights": count(Flown), "average_delay": average({Flown: "delay_minutes"})},
    stores=(Postgres(),),
)
