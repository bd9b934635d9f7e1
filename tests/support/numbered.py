"""Views whose keys are integers, dates and UUIDs, in every store, and events with any of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from headwater import (
    Cache,
    Elasticsearch,
    Event,
    Postgres,
    Ranking,
    TableView,
    add,
    by_key,
    count,
    last,
    negative,
)
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.projections.table.expressions import Source
from headwater.projections.table.json_text import dumps
from tests.support.recording import recording


class Issued(Event, type="invoice.issued"):
    """Is about one number, one day, and one reference."""

    invoice_id: str
    number: int
    day: date
    reference: UUID
    cents: int


class Moved(Event, type="invoice.moved"):
    """Moves cents from one number to another."""

    invoice_id: str
    from_number: int
    to_number: int
    cents: int


invoice = recording("invoice", "invoice_id", Issued, Moved)
EVERYWHERE: Final = (Postgres(), Elasticsearch(), Cache(rankings=(Ranking("-cents"), Ranking("number"))))

numbers = TableView(
    name="numbers",
    key="number",
    columns={"cents": add({Issued: "cents"}), "issued": count(Issued)},
    stores=EVERYWHERE,
)
days = TableView(
    name="days", key="day", columns={"cents": add({Issued: "cents"})}, stores=(Elasticsearch(), Postgres())
)
references = TableView(
    name="references_seen", key="reference", columns={"cents": last({Issued: "cents"})}, stores=(Postgres(),)
)
SENT, RECEIVED = by_key(Moved, "from_number"), by_key(Moved, "to_number")
balances = TableView(
    name="balances",
    key={Issued: "number", Moved: ["from_number", "to_number"]},
    key_name="account",
    columns={"cents": add({Issued: "cents", SENT: negative("cents"), RECEIVED: "cents"}), "moves": count(Moved)},
    stores=(Postgres(), Elasticsearch(), Cache()),
)
VIEWS: Final = (numbers, days, references, balances)
LOWEST, HIGHEST = -(2**63), 2**63 - 1
REFERENCE: Final = "00000000-0000-0000-0000-000000000007"
NUMBERS: Final = (10, 9, -1, 0, 2, LOWEST, HIGHEST, -10, 100, 2**53 + 1, 2**53)


def issued(number: Any, cents: int = 1, day: Any = "2026-03-01", reference: Any = REFERENCE) -> dict[str, Any]:
    """The data of an event, but its id."""
    return {"number": number, "day": day, "reference": reference, "cents": cents}


def sources(given: Iterable[dict[str, Any]]) -> list[Source]:
    """These events, one after another, each of an invoice of its own."""
    found: list[Source] = []
    for number, data in enumerate(given):
        kind, stream = Issued if "number" in data else Moved, f"invoice/I{number}"
        time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        whole = {"invoice_id": f"I{number}", **data}
        event = Envelope(f"{stream}/1", kind.type, stream, time, whole, data_version=1, sequence=1)
        place = Position(partition_of(stream, 4), number)
        found.append(Source(event, place, timestamp_ms(time), encode(event, dumps(whole).encode()).decode()))
    return found
