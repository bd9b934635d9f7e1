"""The bodies of answers: the type of what the routes send, and its schema in the OpenAPI document."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, NotRequired
from urllib.parse import quote

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from headwater.commands.receipt import Receipt as RecordedReceipt

UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~/-]*")
ENCODED: Final = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+")
"""A part of an id of several parts."""
DOTS: Final = frozenset({".", ".."})
"""Parts that clients resolve before they send a path, also if they are percent-encoded."""
COMPONENT: Final = "component"
"""In the schema of a field: the name of the component that describes it, which is made elsewhere."""
Version = Annotated[int, Field(ge=0)]
Line = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
EventPosition = Annotated[str, Field(description="partition:offset", examples=["3:1042"])]
Positions = Annotated[str, Field(pattern=r"^\d{1,5}:\d{1,18}(,\d{1,5}:\d{1,18})*$")]
Problem = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "Problem"})]
Record = Annotated[Any, Field(json_schema_extra={COMPONENT: "Event"})]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Links = dict[str, str]


def stream_link(stream: str) -> str:
    """The path of a stream, also of one whose id cannot be part of a path."""
    aggregate, _, aggregate_id = stream.partition("/")
    if aggregate_id in DOTS:
        return f"/streams?stream={quote(stream, safe='/')}"
    parts = aggregate_id.split("/")
    if len(parts) > 1 and all(ENCODED.fullmatch(part) and part not in DOTS for part in parts):
        # its slashes need not be encoded, which some proxies do not let pass
        return "/streams/" + "/".join(quote(part, safe="") for part in (aggregate, *parts))
    return link("streams", aggregate, aggregate_id)


def receipt_link(command_id: str, stream: str) -> str:
    """The path of a receipt, also of one whose command id cannot be part of a path."""
    if command_id in DOTS:
        return f"/receipts?command_id={command_id}&stream={quoted(stream)}"
    return f"{link('receipts', command_id)}?stream={quoted(stream)}"


def link(*parts: str) -> str:
    """A path of these parts, percent-encoded if necessary."""
    path = "/" + "/".join(parts)
    # most paths need no quoting, which costs more than the rest of an answer
    if UNRESERVED.fullmatch(path) and path.count("/") == len(parts):
        return path
    return "".join("/" + quote(part, safe="") for part in parts)


def quoted(value: str) -> str:
    """The value of a query parameter, percent-encoded if necessary."""
    return value if UNRESERVED.fullmatch(value) else quote(value)


class EventReference(TypedDict):
    """An event that a command appended."""

    id: str
    type: str
    position: EventPosition


class Accepted(TypedDict):
    """The answer to an accepted command."""

    command_id: str
    stream: str
    version: Version
    events: list[EventReference]
    position: Annotated[
        str | None, Field(description="send it as after= to read your own write; null if nothing changed")
    ]
    links: Links


class ReceiptError(TypedDict):
    """Why a command was refused."""

    code: Annotated[str, Field(description="stable, for programs")]
    message: str
    expected: NotRequired[int | None]
    actual: NotRequired[int | None]


class Receipt(TypedDict):
    """The recorded answer to a command."""

    command_id: str
    type: str
    stream: str
    outcome: Literal["accepted", "rejected", "conflict", "failed"]
    version: Version
    events: list[EventReference]
    error: NotRequired[ReceiptError]
    fingerprint: Annotated[str, Field(description="digest of the command: type, body and expected version")]
    time: Time
    origin: Annotated[Literal["client", "process", "outbox"], Field(description="who chose the command id")]
    actor: NotRequired[Annotated[str, Field(description="who caused the command; missing if that is not known")]]


class CommandAnswer(TypedDict):
    """The answer to one line: `accepted` or `problem`."""

    line: Annotated[int, Field(ge=1, description="the line number, from 1, including blank lines")]
    id: Annotated[str | None, Field(description="the command id; null if it cannot be read from the line")]
    status: Annotated[int, Field(description="the status that POST /commands/{type} answers")]
    accepted: NotRequired[Accepted]
    problem: NotRequired[Problem]


class Reported(TypedDict):
    """The answer to a stored observation."""

    id: Annotated[str, Field(description="type/source/id")]
    position: Annotated[
        str,
        Field(
            description="the position in the log of observations, which is not a position of an event",
            examples=["observations/3:1042"],
        ),
    ]


class LineProblem(TypedDict):
    """An invalid line."""

    line: Line
    problem: Problem


class ReportedLines(TypedDict):
    """The answer to many observations."""

    stored: Count
    refused: Count
    problems: Annotated[list[LineProblem], Field(description="the problems of the first invalid lines")]


class LookupDocument(TypedDict):
    """A column that is looked up in another view."""

    type: str
    view: str
    column: str
    on: str


class MadeDocument(TypedDict):
    """Of a view made with `replay rebuild --as`: its source, when it was made, and of which events."""

    view: Annotated[str, Field(description="the view that it was made from")]
    selection: Annotated[str, Field(description="which events; empty: all")]
    position: Annotated[str, Field(description="the view has the events before this position")]
    at: Time | None
    current: Annotated[
        list[str], Field(description="columns that are looked up in other views, whose rows are shown as they are now")
    ]


class ExpiryDocument(TypedDict):
    """When rows of a view expire: so long after the time in a column. No request finds them then."""

    column: str
    after_s: Annotated[float, Field(description="seconds")]


class ViewDocument(TypedDict):
    """A view, with its columns and their types."""

    name: str
    doc: str
    key: str
    columns: dict[str, str]
    lookups: Annotated[
        dict[str, LookupDocument], Field(description="columns that are looked up in another view when a row is read")
    ]
    stores: list[str]
    version: int
    expires: Annotated[ExpiryDocument | None, Field(description="null: its rows do not expire")]
    generation: Annotated[int | None, Field(description="null: not built yet")]
    made: MadeDocument | None
    links: Links


class Views(TypedDict):
    """Every view."""

    views: list[ViewDocument]


class PlacedEvent(TypedDict):
    """An event and its position."""

    position: EventPosition
    event: Record


class AllStreams(TypedDict):
    """A page of the events of all streams."""

    events: list[PlacedEvent]
    unreadable: Annotated[list[EventPosition], Field(description="positions of records that are not valid events")]
    position: Annotated[Positions, Field(description="where to continue: send it as `from`")]
    links: Links


class KeyDocument(TypedDict):
    """A key of a person, without its secret."""

    key_id: str
    created: str
    erased: str | None


class InClearDocument(TypedDict):
    """What was found in a generation of a view, or that a store was not looked at."""

    store: str
    view: str
    generation: int
    rows: Annotated[int, Field(description="that show values of the person in clear, or showed them")]
    problem: Annotated[str, Field(description="why the store was not checked: the read side does it later")]


class PersonErased(TypedDict):
    """What an erasure found and did."""

    person: str
    dry_run: bool
    destroyed: Annotated[list[KeyDocument], Field(description="now; with `dry_run`, those that would be")]
    earlier: Annotated[list[KeyDocument], Field(description="keys that were destroyed before")]
    events: Annotated[
        int | None, Field(description="how many events `GET /persons/{person}` has for operators; null: not known now")
    ]
    observations: Annotated[
        int | None, Field(description="how many observations; null: not known now, or the topic is too large to count")
    ]
    stream_rows: Annotated[
        dict[str, int | None] | None,
        Field(
            description="how many rows, by stream view with sealed columns; null: not known now, or no index by persons"
        ),
    ]
    in_clear: Annotated[
        list[InClearDocument] | None, Field(description="by generation with plaintext columns, what was found in them")
    ]
    remains: Annotated[list[str], Field(description="what is left, and until when")]


class LeftOut(TypedDict):
    """What the answer about a person lacks."""

    streams: Annotated[list[str], Field(description="aggregates with personal fields that the caller may not read")]
    views: Annotated[
        list[str],
        Field(description="views that the caller may not read, that have no rows yet, or that are not searched"),
    ]
    observations: Annotated[
        list[str], Field(description="observations with personal fields, if the caller may not read those of everybody")
    ]
    reasons: Annotated[
        dict[str, Literal["forbidden", "no_rows", "no_index", "unknown_key", "made_earlier"]],
        Field(
            description="by name of `views`: the caller may not read it; it has no rows yet; it is a stream view that "
            "has no table in PostgreSQL, where its rows are found; its key is no field of its records, so that it may "
            "be the person under another name; or it was made with `--as` from an earlier version of its view"
        ),
    ]


class Searched(TypedDict):
    """How much of the topic of observations has been searched, up to this page."""

    observations: Annotated[int, Field(description="of all persons and types")]
    of: Annotated[int, Field(description="how many the topic has")]


class PersonKnown(TypedDict):
    """A page of what is known about a person."""

    person: str
    events: list[Record]
    rows: Annotated[
        dict[str, list[dict[str, Any]]],
        Field(description="by view; of stream views, on the pages after those of events"),
    ]
    observations: Annotated[
        list[dict[str, Any]],
        Field(description="as CloudEvents, each copy that was reported, on the last pages"),
    ]
    searched: Annotated[Searched | None, Field(description="on pages of observations")]
    left_out: LeftOut
    links: Links


class SnapshotDocument(TypedDict):
    """A snapshot that is running."""

    kind: Literal["initial", "incremental"]
    state: str
    table: str
    rows: int | None


@with_config(
    ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "source": "shop",
                    "position": "shop@0/1A2B3C8",
                    "time": "2026-01-31T12:00:00.123Z",
                    "tables": {
                        "public.customers": "cdc.shop.public.customers/0:1042,cdc.shop.public.customers/1:977",
                        "public.products": None,
                    },
                    "snapshot": None,
                }
            ]
        }
    )
)
class CapturedPosition(TypedDict):
    """How far a captured database has been captured."""

    source: str
    position: Annotated[
        str | None, Field(description="in the write-ahead log of the database; null if nothing is captured yet")
    ]
    time: Annotated[Time | None, Field(description="of the last captured commit, by the clock of the database")]
    tables: Annotated[
        dict[str, str | None],
        Field(description="the last positions in the topic of each table; null if it is empty"),
    ]
    snapshot: Annotated[SnapshotDocument | None, Field(description="the snapshot that is running")]


class Health(TypedDict):
    """Whether the process runs, and whether its servers answer.

    environment: the deployment that it serves. instance: a random id of the process. parts: `ready`, or why not.
    """

    status: str
    environment: NotRequired[str]
    instance: NotRequired[str]
    parts: NotRequired[dict[str, str]]


def accepted(receipt: RecordedReceipt) -> Accepted:
    """The answer to an accepted command."""
    own_link = receipt_link(receipt.command_id, receipt.stream)
    return {
        "command_id": receipt.command_id,
        "stream": receipt.stream,
        "version": receipt.version,
        "events": [{"id": e.id, "type": e.type, "position": str(e.position)} for e in receipt.events],
        "position": None if receipt.position is None else str(receipt.position),
        "links": {"stream": stream_link(receipt.stream), "receipt": own_link},
    }


def receipt_headers(receipt: RecordedReceipt) -> dict[str, str]:
    """The stream's path and version."""
    headers = {"Location": stream_link(receipt.stream)}
    if receipt.version:
        headers["ETag"] = f'"{receipt.version}"'
    return headers
