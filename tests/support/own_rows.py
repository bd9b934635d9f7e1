"""Views whose rows are for some readers: notes of their owners, in every store, and what looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from headwater import (
    INTEGER,
    TEXT,
    Aggregate,
    Cache,
    Claim,
    Command,
    Elasticsearch,
    Event,
    Lookup,
    Postgres,
    Ranking,
    StreamView,
    TableView,
    count,
    events,
    last,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Written(Event, type="note.written"):
    note_id: str
    owner: str
    team: int
    words: str
    size: int
    about: str


class Write(Command, type="note.write"):
    note_id: str
    owner: str


class Note(BaseModel):
    model_config = ConfigDict(frozen=True)


def decide(command: Write, state: Note) -> Sequence[Event]:
    return [Written(**command.model_dump(), team=1, words="", size=1, about="")]


def evolve(state: Note, event: Written) -> Note:
    return state


note = Aggregate(name="note", id_field="note_id", initial=Note(), decide=decide, evolve=evolve)
COLUMNS = {name: last({Written: name}) for name in ("owner", "team", "words", "size", "about")}
SUB = {"owner": Claim("sub")}

notes = TableView(
    name="notes",
    key="note_id",
    columns=COLUMNS,
    stores=(
        Postgres(),
        Elasticsearch(text=("words",), facets=("owner", "team")),
        Cache(rankings=(Ranking("-size"), Ranking("-size", within=("owner",)))),
    ),
    readable_by=SUB,
)
plain_notes = TableView(name="plain_notes", key="note_id", columns=COLUMNS, stores=(Postgres(),), readable_by=SUB)
team_notes = TableView(
    name="team_notes", key="note_id", columns=COLUMNS, stores=(Postgres(),), readable_by={"team": Claim("teams")}
)
cached_notes = TableView(name="cached_notes", key="note_id", columns=COLUMNS, stores=(Cache(),), readable_by=SUB)
readers = TableView(
    name="readers", key="owner", columns={"notes": count(Written)}, stores=(Postgres(),), readable_by=SUB
)
subjects = TableView(
    name="subjects",
    key="about",
    columns={"note": last({Written: "note_id"})},
    stores=(Postgres(),),
    lookups=(Lookup("notes", on="note", columns={"words": "words", "note_owner": "owner"}),),
)


def sizes(written: DataFrame) -> DataFrame:
    return written.select("id", "owner", "size")


note_sizes = StreamView(
    name="note_sizes",
    key="id",
    columns={"id": TEXT, "owner": TEXT, "size": INTEGER},
    sources={"written": events(Written, late_after="1h")},
    query=sizes,
    stores=(Postgres(),),
    realtime=True,
    readable_by=SUB,
)
