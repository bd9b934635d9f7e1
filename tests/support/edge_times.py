"""An event with times, views over it, and times at the edges of the calendar."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Position, decode
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import collect, count, last, minimum, nested
from headwater.projections.table.items import item
from headwater.projections.table.view import TableView

OUTSIDE: Final = (
    "0001-01-01T00:00:00+01:00",
    "0001-01-01 00:59:59.999999+01:00",
    "9999-12-31T23:59:59-01:00",
    "9999-12-31T23:59:59.999999-00:01",
)
"""Times that are not in the years 1 to 9999 in UTC."""
INSIDE: Final = {
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000Z",
    "0001-01-01T01:00:00+01:00": "0001-01-01T00:00:00.000Z",
    "0001-01-01T00:00:00": "0001-01-01T00:00:00.000Z",
    "0001-01-01T00:00:00-17:59": "0001-01-01T17:59:00.000Z",
    "9999-12-31T22:59:59.999999-01:00": "9999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59.999999": "9999-12-31T23:59:59.999Z",
    "9999-12-31T23:59:59+17:59": "9999-12-31T06:00:59.000Z",
}
"""Times that are, and how rows have them."""


class Leg(BaseModel):
    """A part of a journey."""

    train: str
    left: datetime
    arrived: datetime | None


class Travelled(Event, type="journey.travelled"):
    """Brings times: of the journey, and of its parts."""

    journey: str
    began: datetime
    ended: datetime | None
    legs: list[Leg]


journeys = TableView(
    name="journeys",
    key="journey",
    columns={
        "began": last({Travelled: "began"}),
        "ended": last({Travelled: "ended"}),
        "first": minimum({Travelled: "ended"}),
        "ends": collect({Travelled: {"ended": "ended"}}, limit=3),
    },
    stores=(Postgres(),),
)
legs = TableView(
    name="legs",
    key="journey",
    columns={
        "legs": nested(
            "train",
            {Travelled: item("legs", "train")},
            {
                "left": last({Travelled: item("legs", "left")}),
                "arrived": last({Travelled: item("legs", "arrived")}),
            },
        ),
    },
    stores=(Postgres(),),
)
trains = TableView(
    name="trains",
    key=item("legs", "train"),
    key_name="train",
    columns={"legs": count(Travelled), "arrived": last({Travelled: item("legs", "arrived")})},
    each={Travelled: "legs"},
    stores=(Postgres(),),
)
VIEWS: Final = (journeys, legs, trains)


def travelled(number: int, **changed: Any) -> Source:
    """A record of a journey; `left` and `arrived` are those of its only leg."""
    time = "2026-01-02T03:04:05Z"
    data = {"journey": f"J{number}", "began": time, "ended": time} | changed
    leg = {"train": f"T{number}", "left": data.pop("left", time), "arrived": data.pop("arrived", time)}
    document = {
        "specversion": "1.0",
        "id": f"journey/J{number}/1",
        "source": "/t",
        "type": "journey.travelled",
        "subject": f"journey/J{number}",
        "time": time,
        "dataversion": 1,
        "sequence": 1,
        "data": {**data, "legs": [leg]},
    }
    text = json.dumps(document)
    return Source(decode(text), Position(0, number), 1_767_323_045_000 + number, text)


def every_edge() -> list[Source]:
    """Each of these times in each place of an event."""
    found: list[Source] = []
    for place in ("began", "ended", "left", "arrived"):
        for text in (*OUTSIDE, *INSIDE):
            found.append(travelled(len(found), **{place: text}))
    return found
