"""`/console`: how everything is now: first what is not well, with the part at fault and the command that helps.

`/console/sources`: captured databases, as far as the log has them.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages
from headwater.api.guard import needs
from headwater.api.guard.needs import CONSOLE
from headwater.api.ports import DeploymentLook, Overseer
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.eventlog.capturing.capture_progress import Commit
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.times import now_ms
from headwater.projections.generations.upkeep.lag import Lag
from headwater.replay.parts import FINE, OWNED_S, Part

SILENT_S: Final = OWNED_S
EVERY_S: Final = 5.0
"""Between two looks while a page is open: owners of partitions append heartbeats every 5 s."""


class Seen(NamedTuple):
    """A look, and when it was taken, in seconds since 1970."""

    look: DeploymentLook
    at_s: float


class SharedLook:
    """Takes a look when somebody needs one, at most one every EVERY_S: without an open page, it does nothing."""

    def __init__(self, overseer: Callable[[], Overseer], clock: Callable[[], float] = time.time) -> None:
        """overseer: looks. clock: returns the time in seconds since 1970."""
        self._overseer, self._clock = overseer, clock
        self._last: Seen | None = None
        self._taking: asyncio.Task[Seen] | None = None

    async def current(self) -> Seen:
        """A look that is at most EVERY_S old; whoever asks meanwhile waits for the same one."""
        if self._last is not None and self._clock() - self._last.at_s < EVERY_S:
            return self._last
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        return await asyncio.shield(self._taking)

    async def _take(self) -> Seen:
        self._last = Seen(await self._overseer().look(), self._clock())
        return self._last


@dataclass(frozen=True)
class ViewRow:
    """A view in a store.

    age_s: of its rows, None if it is not known; is_old: whether that is too much. applied: offsets of all its sources.
    """

    lag: Lag
    part: Part
    age_s: float | None
    applied: int

    @property
    def is_well(self) -> bool:
        """Whether it needs no attention."""
        return self.lag.standing in FINE and not self.part.problem

    @property
    def is_old(self) -> bool:
        """Whether its rows are older than those of a view that works."""
        return self.age_s is not None and self.age_s > SILENT_S


@dataclass(frozen=True)
class Problem:
    """A problem that several parts may have. command: the one that helps; empty if none is known."""

    fault: str
    problem: str
    command: str
    parts: Sequence[Part]


def now_routes(router: APIRouter, pages: Pages, looks: SharedLook) -> None:
    """Add the page. While it can be seen, its browser asks for it again as often as there is a new look."""

    async def now(request: Request) -> Response:
        check_no_query(request)
        seen = await looks.current()
        facts = _facts(seen)
        return pages.answer(request, "now.html", section="now", refresh_s=EVERY_S, **facts)

    router.add_api_route(CONSOLE, now, methods=["GET"], dependencies=needs.operating())


def _facts(seen: Seen) -> dict[str, Any]:
    at_ms, sample = now_ms(), seen.look.sample
    parts = {each.name: each for each in seen.look.parts if each.what == "view"}
    rows = [
        ViewRow(
            lag,
            parts.get(f"{lag.view} in {lag.store}") or Part("view", lag.view, "unknown", "", "nobody"),
            None if (applied := sample.applied_ms.get((lag.view, lag.store))) is None else age_s(at_ms, applied),
            sum(lag.position.values()),
        )
        for lag in sample.lags
    ]
    return {
        "wrong": [each for each in seen.look.parts if each.problem],
        "problems": _grouped(seen.look.parts),
        "rows": sorted(rows, key=lambda row: (row.is_well, row.lag.view, row.lag.store)),
        "streams": list({lag.view: lag.stream.text() for lag in sample.lags if lag.stream is not None}.items()),
        "partitions": [each for each in seen.look.parts if each.what == "partition"],
        "at": datetime.fromtimestamp(seen.at_s, UTC),
    }


def age_s(at_ms: int, applied_ms: int) -> float:
    """How old rows are that have everything up to a time."""
    return max(0.0, (at_ms - applied_ms) / 1000)


def _grouped(parts: Sequence[Part]) -> list[Problem]:
    """The problems, each once."""
    found = defaultdict[tuple[str, str], list[Part]](list)
    for each in parts:
        if each.problem:
            found[each.fault, each.problem].append(each)
    return [Problem(fault, problem, same[0].command, same) for (fault, problem), same in found.items()]


@dataclass(frozen=True)
class ShownSource:
    """A captured database. at: when the last transaction was committed that the log has; age_s: since then."""

    source: Source
    commit: Commit | None
    at: datetime | None
    age_s: float | None
    snapshot: Snapshot | None
    problem: str


def source_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        check_no_query(request)
        found = [await _shown(service, source) for source in service.captured.sources.values()]
        return pages.answer(request, "sources.html", section="sources", sources=found)

    router.add_api_route("/console/sources", show, methods=["GET"], dependencies=needs.operating())


async def _shown(service: Service, source: Source) -> ShownSource:
    try:
        commit = await service.captured.last_commit(source.name)
        snapshot = await service.captured.snapshot(source.name)
    except LogUnavailable as error:
        return ShownSource(source, None, None, None, None, str(error))
    at = None if commit is None else datetime.fromtimestamp(commit.time_ms / 1000, UTC)
    age = None if commit is None else age_s(now_ms(), commit.time_ms)
    return ShownSource(source, commit, at, age, snapshot, "")
