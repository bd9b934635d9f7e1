"""What operators see of a deployment, and what they did: `/console`, and its pages of sources, letters and audit."""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages
from headwater.api.guard import needs
from headwater.api.guard.needs import CONSOLE
from headwater.api.limits import Shared
from headwater.api.reads.deployment import DeploymentLook, DeploymentReader
from headwater.api.requests.parameters import check_names, check_no_query, read_integer
from headwater.api.service import Service
from headwater.eventlog.capturing.capture_progress import Commit
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import LogUnavailable, NotAnEnvelope
from headwater.eventlog.letters import LOST, Letter, cause_of
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import COMMANDS, EVENTS
from headwater.projections.generations.upkeep.lag import Lag
from headwater.replay.parts import FINE, OWNED_S, Part

SILENT_S: Final = OWNED_S
EVERY_S: Final = 5.0
"""Between two looks while a page is open: owners of partitions append heartbeats every 5 s."""
LETTERS: Final = "/console/letters"
MAX_LETTERS: Final = 100
"""Letters of one cause on a page, and in one command."""
MAX_FIELDS: Final = 100
MAX_LEVELS: Final = 5
RETRY: Final = ("replay", "dead-letters", "retry")
DEFAULT_DAYS: Final = 7
MAX_ACTIONS: Final = 500


class Seen(NamedTuple):
    """A look, and when it was taken, in seconds since 1970."""

    look: DeploymentLook
    at_s: float


def shared_look(overseer: Callable[[], DeploymentReader]) -> Shared[Seen]:
    """Takes a look when somebody needs one, at most one every EVERY_S: without an open page, it does nothing."""

    async def look() -> Seen:
        return Seen(await overseer().look(), time.time())

    return Shared(look, EVERY_S)


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


def now_routes(router: APIRouter, pages: Pages, looks: Shared[Seen]) -> None:
    """Add the page. While it can be seen, its browser asks for it again as often as there is a new look."""

    async def now(request: Request) -> Response:
        check_no_query(request)
        seen = await looks.current()
        facts = _facts(seen)
        return pages.answer(request, "now.html", section="now", refresh_s=EVERY_S, **facts)

    router.add_api_route(CONSOLE, now, methods=["GET"], dependencies=needs.operating())


def _facts(seen: Seen) -> dict[str, Any]:
    at_ms, sample = now_ms(), seen.look.sample
    parts = {part.name: part for part in seen.look.parts if part.what == "view"}
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
        "wrong": [part for part in seen.look.parts if part.problem],
        "problems": _grouped(seen.look.parts),
        "rows": sorted(rows, key=lambda row: (row.is_well, row.lag.view, row.lag.store)),
        "streams": list({lag.view: lag.stream.text() for lag in sample.lags if lag.stream is not None}.items()),
        "partitions": [part for part in seen.look.parts if part.what == "partition"],
        "at": datetime.fromtimestamp(seen.at_s, UTC),
    }


def age_s(at_ms: int, applied_ms: int) -> float:
    """How old rows are that have everything up to a time."""
    return max(0.0, (at_ms - applied_ms) / 1000)


def _grouped(parts: Sequence[Part]) -> list[Problem]:
    """The problems, each once."""
    parts_by_kind = defaultdict[tuple[str, str], list[Part]](list)
    for part in parts:
        if part.problem:
            parts_by_kind[part.fault, part.problem].append(part)
    return [Problem(fault, problem, same[0].command, same) for (fault, problem), same in parts_by_kind.items()]


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
        shown_sources = [await _shown_source(service, source) for source in service.captured.sources.values()]
        return pages.answer(request, "sources.html", section="sources", sources=shown_sources)

    router.add_api_route("/console/sources", show, methods=["GET"], dependencies=needs.operating())


async def _shown_source(service: Service, source: Source) -> ShownSource:
    try:
        commit = await service.captured.last_commit(source.name)
        snapshot = await service.captured.snapshot(source.name)
    except LogUnavailable as error:
        return ShownSource(source, None, None, None, None, str(error))
    at = None if commit is None else datetime.fromtimestamp(commit.time_ms / 1000, UTC)
    age = None if commit is None else age_s(now_ms(), commit.time_ms)
    return ShownSource(source, commit, at, age, snapshot, "")


@dataclass(frozen=True)
class ShownLetter:
    """A letter on a page. event: its record, if it is one. shape: its data with kinds and sizes in place of values."""

    key: str
    letter: Letter
    event: Envelope | None
    shape: Any
    command: str

    @property
    def is_in_a_stream(self) -> bool:
        """Whether its record is an event, which everybody who sees this page may read."""
        return self.event is not None and self.event.sequence > 0 and self.key.startswith(f"{EVENTS}/")


@dataclass(frozen=True)
class Cause:
    """The letters of one cause. number: of all of them. command: retries those that are shown; empty if no
    retry can help."""

    name: str
    number: int
    letters: Sequence[ShownLetter]
    command: str
    of_commands: bool


def letter_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        check_no_query(request)
        causes = _causes(await service.overseer.letters())
        return pages.answer(request, "letters.html", section="letters", causes=causes)

    router.add_api_route(LETTERS, show, methods=["GET"], dependencies=needs.operating())


def _causes(letters: Mapping[str, Letter]) -> list[Cause]:
    """The most frequent one first."""
    by_cause = defaultdict[str, list[str]](list)
    for key in letters:
        by_cause[cause_of(key)].append(key)
    causes = []
    for name, keys in by_cause.items():
        shown = keys[-1 : -MAX_LETTERS - 1 : -1]
        command = "" if all(LOST.fullmatch(key) for key in keys) else shlex.join((*RETRY, *shown))
        of_commands = any(key.startswith(f"{COMMANDS}/") for key in keys)
        causes.append(Cause(name, len(keys), [_shown_letter(key, letters[key]) for key in shown], command, of_commands))
    return sorted(causes, key=lambda cause: -cause.number)


def _shown_letter(key: str, letter: Letter) -> ShownLetter:
    event: Envelope | None = None
    shown: Any = None
    if letter.value is not None:
        try:
            event = decode(letter.value)
            shown = shape(event.data)
        except NotAnEnvelope:
            try:
                shown = shape(orjson.loads(letter.value))
            except orjson.JSONDecodeError:
                shown = f"{len(letter.value):,} bytes that are no JSON"
    return ShownLetter(key, letter, event, shown, shlex.join((*RETRY, key)))


def shape(value: Any, level: int = 0) -> Any:
    """A value with kinds and sizes in place of texts and numbers, which are nobody's business here."""
    if isinstance(value, Mapping):
        if level >= MAX_LEVELS:
            return f"object with {len(value)} members"
        return {str(name): shape(item, level + 1) for name, item in list(value.items())[:MAX_FIELDS]}
    if isinstance(value, list):
        return [shape(value[0], level + 1), f"{len(value):,} items"] if value and level < MAX_LEVELS else []
    if value is None or isinstance(value, bool):
        return value
    return f"text of {len(value):,} characters" if isinstance(value, str) else "number"


def audit_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        plain = check_names(request.query_params.multi_items(), ("days",))
        days = read_integer("days", plain.get("days", str(DEFAULT_DAYS)), 1, 3650)
        actions = await service.overseer.trail(datetime.now(UTC) - timedelta(days=days))
        return pages.answer(
            request,
            "audit.html",
            section="audit",
            records=list(reversed(actions[-MAX_ACTIONS:])),
            hidden=max(0, len(actions) - MAX_ACTIONS),
            days=days,
        )

    router.add_api_route("/console/audit", show, methods=["GET"], dependencies=needs.operating())
