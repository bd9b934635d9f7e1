"""A sample of observations, checked: the rows that must follow from its reports, and their order, computed apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import asin, cos, radians, sin, sqrt
from typing import Any, Final
from urllib.parse import quote

import httpx
import valkey

from headwater.compose.samples.observed import Report, ReportTraffic
from headwater.compose.samples.sample import Client, Deployment, Request
from headwater.eventlog.envelope import EPOCH
from tests.samples.checked import CheckedSample, Happened, happened, read_after, settled, wait_until
from tests.samples.stored_rows import Rows, cached, differences, is_equal, table

MEASURED: Final = 3
WAIT_MS: Final = 30_000
LONGEST_WAIT: Final = timedelta(minutes=5)
"""Rows that are final later are not awaited."""
SENT_WITHIN: Final = timedelta(seconds=45)
"""From the time at which a row is final until it must be in the stores: it takes two heartbeats, every 15 seconds."""
EARTH_M: Final = 6_371_000.0


def admitted(reports: Iterable[Report], limit: timedelta) -> Iterator[Report]:
    """Each report that is not later than `limit`, in the order of acceptance; one that was sent again, once."""
    seen = set[str]()
    for report in sorted(reports, key=lambda report: report.recorded):
        if report.recorded - report.time <= limit and report.name not in seen:
            seen.add(report.name)
            yield report


def distance_m(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The distance of two places, by the haversine formula."""
    here, there = radians(one["latitude"]), radians(other["latitude"])
    east = radians(other["longitude"] - one["longitude"])
    return 2 * EARTH_M * asin(sqrt(sin((there - here) / 2) ** 2 + cos(here) * cos(there) * sin(east / 2) ** 2))


def floor(time: datetime, length: timedelta) -> datetime:
    """The start of the window of this length that `time` is in."""
    return time - (time - EPOCH) % length


def row_key(*columns: str | datetime) -> str:
    """The text of a row's key with several columns."""
    texts = (time_text(column) if isinstance(column, datetime) else column for column in columns)
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in texts)


def time_text(time: datetime) -> str:
    """A time in a row's key."""
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


MAX_ROWS: Final = 1000

Leaders = dict[tuple[Any, ...], list[str]]
"""The keys of rows, the first one first, by the values of `within`."""


@dataclass(frozen=True)
class Leaderboard:
    """A ranking of a view. column: of a number, the highest first. within: columns that divide the rows."""

    view: str
    key: str
    column: str
    within: tuple[str, ...] = ()

    def leaders(self, rows: Rows) -> Leaders:
        """The order that these rows must have; rows with equal numbers are in the order of their keys."""
        found: Leaders = {}
        for key in sorted(rows, key=lambda key: (-rows[key][self.column], key.encode())):
            found.setdefault(tuple(rows[key][name] for name in self.within), []).append(key)
        return found

    def shown(self, http: httpx.Client, groups: Leaders) -> Leaders:
        """The order in the API's answers, for these groups: the leaders, and page by page those after them."""
        found: Leaders = {}
        for values in groups:
            filters = {name: _parameter(value) for name, value in zip(self.within, values, strict=True)}
            query: dict[str, Any] = {**filters, "sort": f"-{self.column}", "limit": 3}
            found[values] = []
            while query.get("cursor", "") is not None:
                page = http.get(f"/views/{self.view}", params=query).raise_for_status().json()
                found[values] += [row[self.key] for row in page["rows"]]
                query |= {"limit": MAX_ROWS, "cursor": page["next"]}
        return found

    def stored(self, deployment: Deployment, groups: Leaders) -> Leaders:
        """The order in the sorted sets of these groups."""
        ranking = "/".join((f"-{self.column}", *((",".join(self.within),) if self.within else ())))
        with valkey.Valkey.from_url(deployment.endpoints.valkey, decode_responses=True) as cache:
            generation = cache.get(f"{deployment.environment}:{self.view}:generation")
            name = f"{deployment.environment}:{self.view}:g{generation}.ranking:{ranking}"
            sets = {values: f"{name}:{_texts(values)}" if values else name for values in groups}
            ordered: Any = {values: cache.zrange(ranking, 0, -1) for values, ranking in sets.items()}
        return dict(ordered)

    def differences(self, expected: Leaders, actual: Leaders, place: str) -> Iterator[str]:
        """How the orders differ, as texts. place: where the actual one is."""
        for values, keys in expected.items():
            if actual[values] != keys:
                group = f" of {', '.join(map(str, values))}" if values else ""
                yield f"the leaders{group} in {self.view} are {actual[values]} in {place}, Python says {keys}"


def _texts(values: tuple[Any, ...]) -> str:
    return json.dumps([_parameter(value) for value in values], ensure_ascii=False, separators=(",", ":"))


def _parameter(value: Any) -> Any:
    return time_text(value) if isinstance(value, datetime) else value


@dataclass(frozen=True)
class Checked:
    """A view, in PostgreSQL and Valkey, and how its rows are computed apart.

    key: the column with the row's key.
    rows: computes all rows of some reports, or events.
    final: of a view whose rows are sent once, when a row is sent.
    leaderboard: the order that its rows must also have.
    """

    view: str
    key: str
    rows: Callable[[Sequence[Any]], Rows]
    final: Callable[[Mapping[str, Any]], datetime] | None = None
    leaderboard: Leaderboard | None = None

    def expected(self, reports: Sequence[Any], stored: Rows, now: datetime) -> Rows:
        """The rows that must be there at `now`: a row that has just become final may be there, or not yet."""
        rows, final = self.rows(reports), self.final
        if final is None:
            return rows
        return {key: row for key, row in rows.items() if key in stored or final(row) + SENT_WITHIN <= now}

    def differences(self, deployment: Deployment, reports: Sequence[Any]) -> Iterator[str]:
        """Every difference between the stored rows and those that Python expects."""
        for stored in (table(deployment, self.view, self.key), cached(deployment, self.view)):
            expected = self.expected(reports, stored, datetime.now(UTC))
            yield from differences(self.view, expected, stored, "Python")


@dataclass(frozen=True)
class Followed:
    """What a process makes of rows, checked in the events of aggregates.

    aggregates: their names. wrong: how the events differ at a time from those that must follow from some reports.
    """

    aggregates: tuple[str, ...]
    wrong: Callable[[Sequence[Report], Sequence[Happened], datetime], Iterator[str]]


@dataclass(frozen=True)
class Domain:
    """A sample of observations, checked.

    traffic: what it sends.
    one: one report, by its name and time.
    checked: its views; freshness is measured with the first, if its rows are not final.
    followed: the work of its processes, if it has any.
    """

    things: str
    traffic: ReportTraffic
    one: Callable[[str, datetime], Report]
    checked: Sequence[Checked]
    followed: Followed | None = None


class CheckedObserved(CheckedSample):
    """The reports that were sent, and the rows that must follow from them."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._sent: list[Report] = []
        self._due = EPOCH
        self.things, self.number = domain.things, len(domain.traffic.sent_at(EPOCH))
        self.views = [checked.view for checked in domain.checked]
        self.measured = 0 if domain.checked[0].final else MEASURED

    def loading(self) -> Sequence[Sequence[Request]]:
        now = datetime.now(UTC).replace(microsecond=0)
        self._sent += self._domain.traffic.sent_at(now)
        due = (
            checked.final(row) + SENT_WITHIN
            for checked in self._domain.checked
            if checked.final is not None
            for row in checked.rows(self._sent).values()
        )
        self._due = max((each for each in due if each <= now + LONGEST_WAIT), default=now)
        self.rows = {
            generation.view: next(iter(generation.rows(self._sent)))
            for generation in self._domain.checked
            if not generation.final
        }
        return [[each.request for each in self._sent]]

    def rounds(self) -> Sequence[Sequence[Request]]:
        return self.loading()

    async def write_and_read(self, client: Client, number: int) -> tuple[float, str]:
        checked = self._domain.checked[0]
        report = self._one(f"fresh-{number}")
        key, sent = next(iter(checked.rows([report]))), await client.send(report.request)
        path = f"/views/{checked.view}/{quote(key)}"
        took_s, answer = await read_after(client, path, sent["position"], wait_ms=WAIT_MS)
        row, shown = checked.rows(self._sent)[key], answer.json()
        same = answer.is_success and all(is_equal(value, shown.get(name)) for name, value in row.items())
        return took_s, "" if same else f"{checked.view}/{key} did not show its own report: {answer.text}"

    async def trade(self, client: Client, number: int) -> None:
        await client.send(self._one(f"traded-{number}").request)

    async def mismatches(self, client: Client, deployment: Deployment) -> list[str]:
        await client.settle(self.rows)
        await wait_until(self._due, ", ".join(checked.view for checked in self._domain.checked if checked.final))
        return await settled(lambda: self._differences(client, deployment))

    def _one(self, name: str) -> Report:
        now = datetime.now(UTC)
        report = self._domain.one(name, now.replace(microsecond=now.microsecond // 1000 * 1000))
        self._sent.append(report)
        return report

    def _differences(self, client: Client, deployment: Deployment) -> Iterator[str]:
        """Every difference between the stored rows and those that Python expects, and of their order."""
        for checked in self._domain.checked:
            yield from checked.differences(deployment, self._sent)
            if (board := checked.leaderboard) is not None:
                leaders = board.leaders(checked.rows(self._sent))
                asked = httpx.Client(base_url=client.http.base_url, headers=client.http.headers, trust_env=False)
                with asked as http:
                    yield from board.differences(leaders, board.shown(http, leaders), "the API's answers")
                yield from board.differences(leaders, board.stored(deployment, leaders), "Valkey")
        if (followed := self._domain.followed) is not None:
            events = happened(deployment, followed.aggregates)
            yield from followed.wrong(self._sent, events, datetime.now(UTC))
