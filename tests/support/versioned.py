"""An event with a past, a view over it, and records of each of its versions and of a later one."""

from __future__ import annotations

import json
from typing import Any

from headwater import convert, default, rename, upcast
from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Position, decode
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from tests.support.recording import recording

FIRST_MS = 1_767_323_045_000


class Weighed(Event, type="probe.probed", version=3, history=(
    upcast(1, rename("grams", "weight")),
    upcast(2, convert("weight", lambda grams: 1000 * grams), default("scale", "old")),
)):  # fmt: skip
    """Before version 3 the weight was in grams, and before version 2 it was called so."""

    probe: str
    note: str
    weight: int
    scale: str


probe = recording("probe", "note", Weighed)
weighed = TableView(
    name="weighed",
    key="probe",
    columns={"weight": last({Weighed: "weight"}), "scale": last({Weighed: "scale"})},
    stores=(Postgres(),),
)


def source(number: int, version: Any, data: Any, partition: int = 0, recorded_as: str = "probe.probed") -> Source:
    """A record of an event, as a handler of that version would have written it; `version` None: none is told."""
    named = {"specversion": "1.0", "id": f"probe/1/{number + 1}", "source": "/t", "type": recorded_as}
    time = "2026-01-01T00:00:00Z"
    document = {**named, "subject": "probe/1", "time": time, "sequence": number + 1, "data": data}
    if version is not None:
        document["dataversion"] = version
    text = json.dumps(document, ensure_ascii=number % 2 == 0)
    return Source(decode(text), Position(partition, number), FIRST_MS + number, text)


def versioned(number: int, event: type[Event], version: int, data: Any) -> Source:
    """A record of a version of this event, under the type that it had then."""
    return source(number, version, data, recorded_as=event.history.type_of(version))


def readable() -> list[Source]:
    """One record of each version."""
    return [
        source(0, 1, {"probe": "a", "note": "", "grams": 2}),
        source(1, 2, {"probe": "b", "note": "", "weight": 3}),
        source(2, 3, {"probe": "c", "note": "", "weight": 4, "scale": "new"}),
    ]


def unreadable() -> list[Source]:
    """A record of a later version, one that tells none, and one of another type."""
    return [
        source(3, 4, {"probe": "d", "note": "", "mass": 4}),
        source(4, None, {"probe": "e", "note": "", "weight": 4, "scale": "new"}),
        source(5, 1, {"probe": "f", "note": "", "grams": "2"}),
    ]


REASONS = (
    '"probe.probed" has version 4, but the newest known here is 3: '
    "it was written by a newer version of the code, deploy that here too",
    '"probe.probed" has no "dataversion": it must be an integer of at least 1',
    '"probe.probed" lacks a field, or has it with another type: weight',
)
