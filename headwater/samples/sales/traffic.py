"""The sample `sales` in `make run` and `make demo`."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from rich.console import Console

from headwater.compose.samples.observed import SENT_WITHIN
from headwater.compose.samples.report import EPOCH
from headwater.compose.samples.sample import Client, Deployment, Request, Sample, settled
from headwater.compose.samples.stored_rows import Rows, cached, differences, table

from .expected import (
    FINAL_AFTER,
    late_for_minutes,
    late_for_taxes,
    per_category,
    per_minute,
    sale_is_final,
    taxed,
    tiers,
)
from .facts import COMMANDS, Fact, facts

SEED: Final = 1
LENGTH: Final = timedelta(minutes=30)
ROUNDS: Final = 30
"""What is sent in one round has nearly the same times; with several, sales fall between changes."""
LOOK_AGAIN_S: Final = 0.5

console = Console(stderr=True)


class Checked(NamedTuple):
    """A view. key: the column with the row's key. rows: computes its rows of some events."""

    key: str
    rows: Callable[[Sequence[Fact]], Rows]


VIEWS: Final[Mapping[str, Checked]] = {
    "category_sales": Checked("category", per_category),
    "membership_tiers": Checked("key", tiers),
    "sales_per_minute": Checked("key", per_minute),
    "sales_per_minute_late": Checked("id", late_for_minutes),
    "taxed_sales": Checked("sale_id", taxed),
    "taxed_sales_late": Checked("id", late_for_taxes),
}


class Sales:
    """Sales between changes of tiers and tax rates; see Sample for the methods.

    The times of events are those at which the API accepted their commands. So the expected rows are computed from the
    events, as the view `streams` has them; that each sale has its event is checked as well.
    """

    things = "sales"
    measured = 100
    views: Sequence[str] = tuple(VIEWS)
    rows: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._sent: dict[str, Mapping[str, Any]] = {}
        self._due = EPOCH

    @property
    def number(self) -> int:
        return sum(each.type == "sale.made" for each in _traffic())

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        return

    def loading(self) -> Sequence[Mapping[str, Request]]:
        return [
            {f"load-sales-{at}-{number}": request for number, request in enumerate(requests)}
            for at, requests in enumerate(self._begin())
        ]

    def rounds(self) -> Sequence[Sequence[Request]]:
        return self._begin()

    async def change(self) -> None:
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        sale = _sale(f"fresh-{number}", f"category {number}")
        receipt = await client.send(self._noted(sale))
        began = time.perf_counter()
        path = f"/views/category_sales/{sale.data['category']}"
        answer = await client.http.get(path, params={"after": receipt["events"][0]["position"]})
        took_s = time.perf_counter() - began
        shown = answer.is_success and answer.json().get("cents") == sale.data["cents"]
        return took_s, "" if shown else f"category_sales did not show its own write: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._noted(_sale(f"traded-{number}", "books")))

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        happened = await asyncio.to_thread(_read, deployment)
        found = list(self._missing(happened))
        if self._due == EPOCH:
            self._due = max(each.time for each in happened) + FINAL_AFTER + SENT_WITHIN
        wait_s = (self._due - datetime.now(UTC)).total_seconds()
        if wait_s > 0:
            console.print(f"waiting {wait_s:.0f} s until the rows of taxed_sales are final")
            await asyncio.sleep(wait_s)
        return found + await settled(lambda: _differences(deployment, happened), LOOK_AGAIN_S)

    def _begin(self) -> list[list[Request]]:
        sent = sorted(_traffic(), key=lambda each: each.time)
        self.rows = {"category_sales": "books", "streams": f"sale/{_first(sent)}/1"}
        size = -(-len(sent) // ROUNDS)
        return [[self._noted(each) for each in sent[at : at + size]] for at in range(0, len(sent), size)]

    def _noted(self, fact: Fact) -> Request:
        if fact.type == "sale.made":
            self._sent[fact.data["sale_id"]] = fact.data
        return fact.request

    def _missing(self, happened: Iterable[Fact]) -> Iterator[str]:
        """Every sale that was sent and is not, or is otherwise, among the events, and the other way round."""
        made = {each.data["sale_id"]: each.data for each in happened if each.type == "sale.made"}
        for name in sorted(made.keys() | self._sent.keys()):
            if made.get(name) != self._sent.get(name):
                yield f"sale {name} is {made.get(name)}, but {self._sent.get(name)} was sent"


def _traffic() -> list[Fact]:
    return facts(random.Random(SEED), EPOCH, LENGTH)


def _first(sent: Iterable[Fact]) -> str:
    return next(str(each.data["sale_id"]) for each in sent if each.type == "sale.made")


def _sale(name: str, category: str) -> Fact:
    data = {"sale_id": name, "customer": "Ada", "country": "AT", "category": category, "cents": 250}
    return Fact(f"sale/{name}", 1, "sale.made", EPOCH, EPOCH, data)


def _read(deployment: Deployment) -> list[Fact]:
    query = psycopg.sql.SQL("SELECT stream, sequence, type, time, record FROM {} WHERE type = ANY(%s)").format(
        psycopg.sql.Identifier(deployment.environment, "streams")
    )
    with psycopg.connect(deployment.endpoints.postgres) as connection:
        found = connection.execute(query, [[*COMMANDS]]).fetchall()
    documents = ((*columns, json.loads(record)) for *columns, record in found)
    return [
        Fact(stream, sequence, kind, at, datetime.fromisoformat(document["recordedtime"]), document["data"])
        for stream, sequence, kind, at, document in documents
    ]


def _differences(deployment: Deployment, happened: Sequence[Fact]) -> Iterator[str]:
    """Every difference between the stored rows and those that Python expects of these events."""
    for view, checked in VIEWS.items():
        for stored in (table(deployment, view, checked.key), cached(deployment, view)):
            expected = checked.rows(happened)
            if view == "taxed_sales":
                now = datetime.now(UTC)
                due = {key for key, row in expected.items() if sale_is_final(row) + SENT_WITHIN <= now}
                expected = {key: row for key, row in expected.items() if key in stored or key in due}
            yield from differences(view, expected, stored, "Python")


def sample() -> Sample:
    """What `run` and `demo` send, and check."""
    return Sales()


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("the sales of each category", "curl -sS '{api}/views/category_sales?sort=-cents'"),
    (
        "sell something",
        "curl -sS -X POST {api}/commands/sale.make -H 'content-type: application/json' "
        '-d \'{{"sale_id": "mine", "customer": "me", "country": "AT", "category": "books", "cents": 1250}}\'',
    ),
    ("who bought most per minute", "curl -sS '{api}/views/sales_per_minute?sort=-sales&limit=5'"),
    ("which tiers a customer was in, and when", "curl -sS '{api}/views/membership_tiers?sort=-valid_from&limit=5'"),
    (
        "sales with the tier and the tax rate of their time: reported after four minutes",
        "curl -sS '{api}/views/taxed_sales?sort=-made_at&limit=5'",
    ),
)
"""What each does, and its command."""
