"""The interface of a sample that `make demo` checks, and what the checks of several samples share."""

from __future__ import annotations

import asyncio
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, NamedTuple

import httpx
import psycopg

from headwater.compose.samples.sample import LOOK_AGAIN_S, SETTLE_S, Client, Deployment, Request, Sample, console
from headwater.eventlog.envelope import EPOCH


class CheckedSample(Sample):
    """A sample in use: more that is sent, changes outside Headwater, and the check of its views.

    things: what `number` counts: listings, orders and so on. number: how many there are after `rounds`.
    views: those that `mismatches` checks. measured: how often the demo calls `write_and_read`.
    """

    things: str
    number: int
    views: Sequence[str]
    measured = 0

    @abstractmethod
    def rounds(self) -> Sequence[Sequence[Request]]:
        """What the demo sends first, in rounds; requests of one round may be sent at once."""

    async def change(self) -> None:
        """Change what is outside Headwater, if anything is, while the requests of a round are sent."""
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        """Change one thing and read it back from PostgreSQL.

        number: a different one for each call, from 0. Returns the seconds from the receipt or commit to the row, and
        what is wrong with the row, or "".
        """
        raise NotImplementedError  # its rows are final

    @abstractmethod
    async def trade(self, client: Client, number: int) -> None:
        """Send requests, and change what is outside, while views are rebuilt. number: of the call, from 0."""

    @abstractmethod
    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        """Every difference between the views and what was sent and changed, read from the stores; empty if none."""


def checked_sample(domain: str) -> CheckedSample:
    """A new sample by its name."""
    found: CheckedSample = import_module(f"tests.samples.{domain}").sample()
    return found


async def read_after(client: Client, path: str, position: str, **parameters: Any) -> tuple[float, httpx.Response]:
    """Read a row that has what is at this position; returns the seconds that this takes, and the answer."""
    began = time.perf_counter()
    answer = await client.http.get(path, params={"after": position, **parameters})
    return time.perf_counter() - began, answer


async def settled(find: Callable[[], Iterable[str]]) -> list[str]:
    """The mismatches that `find` still finds after SETTLE_S; it is called in a thread until it finds none."""
    deadline = time.monotonic() + SETTLE_S
    while found := await asyncio.to_thread(lambda: list(find())):
        if time.monotonic() > deadline:
            return found
        await asyncio.sleep(LOOK_AGAIN_S)
    return []


async def wait_until(due: datetime, views: str) -> None:
    """Return at this time, when the rows of some views are final."""
    wait_s = (due - datetime.now(UTC)).total_seconds()
    if wait_s > 0:
        console.print(f"waiting {wait_s:.0f} s until the rows of {views} are final")
        await asyncio.sleep(wait_s)


class Happened(NamedTuple):
    """An event. time, recorded: when its command was accepted, and when it was decided."""

    stream: str
    sequence: int
    type: str
    data: Mapping[str, Any]
    time: datetime = EPOCH
    recorded: datetime = EPOCH


def happened(deployment: Deployment, aggregates: Sequence[str]) -> list[Happened]:
    """All events of the aggregates with these names, those of a stream in order."""
    query = psycopg.sql.SQL(
        "SELECT stream, sequence, type, time, record FROM {} WHERE split_part(stream, '/', 1) = ANY(%s) "
        "ORDER BY stream, sequence"
    ).format(psycopg.sql.Identifier(deployment.environment, "streams"))
    with psycopg.connect(deployment.endpoints.postgres) as connection:
        rows = connection.execute(query, [list(aggregates)]).fetchall()
    found = []
    for stream, sequence, kind, at, record in rows:
        document = json.loads(record)
        recorded = datetime.fromisoformat(document["recordedtime"])
        found.append(Happened(stream, sequence, kind, document["data"], at, recorded))
    return found
