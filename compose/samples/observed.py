"""A sample of observations in `make run` and `make demo`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from rich.console import Console

from headwater.compose.samples.leaderboards import Leaderboard
from headwater.compose.samples.report import EPOCH, Report
from headwater.compose.samples.sample import SETTLE_S, Client, Deployment, Happened, Request, happened
from headwater.compose.samples.stored_rows import Rows, cached, differences, is_equal, table

SEED: Final = 1
MEASURED: Final = 3
WAIT_MS: Final = 30_000
LATE_PER: Final = 20
"""One of so many reports is late."""
LOOK_AGAIN_S: Final = 0.5
LONGEST_WAIT: Final = timedelta(minutes=5)
"""Rows that are final later are not awaited."""
SENT_WITHIN: Final = timedelta(seconds=45)
"""From the time at which a row is final until it must be in the stores: it takes two heartbeats, every 15 seconds."""

console = Console(stderr=True)


@dataclass(frozen=True)
class Checked:
    """A stream view, in PostgreSQL and Valkey, and how its rows are computed apart.

    key: the column with the row's key.
    rows: computes all rows of some reports.
    final: of a view whose rows are sent once, when a row is sent.
    leaderboard: the order that its rows must also have.
    """

    view: str
    key: str
    rows: Callable[[Sequence[Report]], Rows]
    final: Callable[[Mapping[str, Any]], datetime] | None = None
    leaderboard: Leaderboard | None = None

    def expected(self, reports: Sequence[Report], stored: Rows, now: datetime) -> Rows:
        """The rows that must be there at `now`: a row that has just become final may be there, or not yet."""
        rows, final = self.rows(reports), self.final
        if final is None:
            return rows
        return {key: row for key, row in rows.items() if key in stored or final(row) + SENT_WITHIN <= now}


@dataclass(frozen=True)
class Followed:
    """What a process makes of rows, checked in the events of aggregates.

    aggregates: their names. wrong: how the events differ at a time from those that must follow from some reports.
    """

    aggregates: tuple[str, ...]
    wrong: Callable[[Sequence[Report], Sequence[Happened], datetime], Iterator[str]]


@dataclass(frozen=True)
class Domain:
    """A sample of observations.

    length: of the traffic; shorter than any view's `late_after`.
    traffic: the reports from a time on, for a length of time.
    one: one report, by its name and time.
    late_by: how much later some reports are sent.
    checked: its views; freshness is measured with the first, if its rows are not final.
    followed: the work of its processes, if it has any.
    """

    things: str
    length: timedelta
    traffic: Callable[[random.Random, datetime, timedelta], list[Report]]
    one: Callable[[str, datetime], Report]
    late_by: Sequence[timedelta]
    checked: Sequence[Checked]
    followed: Followed | None = None


class ObservedSample:
    """See Sample for the methods."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._sent: list[Report] = []
        self._due = EPOCH
        self.things = domain.things
        self.views: Sequence[str] = [each.view for each in domain.checked]
        self.rows: Mapping[str, str] = {}
        self.measured = 0 if domain.checked[0].final else MEASURED

    @property
    def number(self) -> int:
        return len(self._traffic(EPOCH))

    async def prepare(self, client: Client, deployment: Deployment) -> None:
        return

    def loading(self) -> Sequence[Mapping[str, Request]]:
        return [{f"load-{number}": request for number, request in enumerate(self._first())}]

    def rounds(self) -> Sequence[Sequence[Request]]:
        return [self._first()]

    async def change(self) -> None:
        return

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        checked = self._domain.checked[0]
        report = self._one(f"fresh-{number}")
        key, sent = next(iter(checked.rows([report]))), await client.send(report.request)
        began = time.perf_counter()
        answer = await client.http.get(
            f"/views/{checked.view}/{quote(key)}", params={"after": sent["position"], "wait_ms": WAIT_MS}
        )
        took_s = time.perf_counter() - began
        row, shown = checked.rows(self._sent)[key], answer.json()
        same = answer.is_success and all(is_equal(value, shown.get(name)) for name, value in row.items())
        return took_s, "" if same else f"{checked.view}/{key} did not show its own report: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._one(f"traded-{number}").request)

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        wait_s = (self._due - datetime.now(UTC)).total_seconds()
        if wait_s > 0:
            console.print(f"waiting {wait_s:.0f} s until the rows of {', '.join(self._final)} are final")
            await asyncio.sleep(wait_s)
        deadline = time.monotonic() + SETTLE_S
        while found := [
            *await asyncio.to_thread(lambda: list(self._differences(deployment))),
            *await self._misranked(client, deployment),
        ]:
            if time.monotonic() > deadline:
                return found
            await asyncio.sleep(LOOK_AGAIN_S)
        return []

    @property
    def _final(self) -> list[str]:
        return [each.view for each in self._domain.checked if each.final is not None]

    def _first(self) -> list[Request]:
        """The first traffic: it ends now, and was delivered at once, some of it late."""
        now = datetime.now(UTC).replace(microsecond=0)
        late, chance = dict[tuple[str, str], timedelta](), random.Random(SEED)
        for each in self._traffic(now - self._domain.length):
            same = (each.type, each.id)  # two sources may report the same
            if same not in late:
                late[same] = timedelta() if chance.randrange(LATE_PER) else chance.choice(self._domain.late_by)
            self._sent.append(replace(each, time=each.time - late[same], recorded=now))
        self._due = max((due for due in self._final_times() if due <= now + LONGEST_WAIT), default=now)
        self.rows = {each.view: next(iter(each.rows(self._sent))) for each in self._domain.checked if not each.final}
        return [each.request for each in self._sent]

    def _traffic(self, start: datetime) -> list[Report]:
        return self._domain.traffic(random.Random(SEED), start, self._domain.length)

    def _final_times(self) -> Iterator[datetime]:
        for each in self._domain.checked:
            if each.final is not None:
                yield from (each.final(row) + SENT_WITHIN for row in each.rows(self._sent).values())

    def _one(self, name: str) -> Report:
        now = datetime.now(UTC)
        report = self._domain.one(name, now.replace(microsecond=now.microsecond // 1000 * 1000))
        self._sent.append(report)
        return report

    def _differences(self, deployment: Deployment) -> Iterator[str]:
        """Every difference between the stored rows and those that Python expects."""
        for each in self._domain.checked:
            for stored in (table(deployment, each.view, each.key), cached(deployment, each.view)):
                expected = each.expected(self._sent, stored, datetime.now(UTC))
                yield from differences(each.view, expected, stored, "Python")
        if (followed := self._domain.followed) is not None:
            events = happened(deployment, followed.aggregates)
            yield from followed.wrong(self._sent, events, datetime.now(UTC))

    async def _misranked(self, client: Client, deployment: Deployment) -> list[str]:
        """Every leaderboard that is not in the order that Python expects."""
        found: list[str] = []
        for each in self._domain.checked:
            if (board := each.leaderboard) is not None:
                expected = board.leaders(each.rows(self._sent))
                found += board.differences(expected, await board.shown(client.http, expected), "the API's answers")
                stored = await asyncio.to_thread(board.stored, deployment, expected)
                found += board.differences(expected, stored, "Valkey")
        return found
