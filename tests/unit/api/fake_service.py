"""The service's ports in memory, so that routes are tested without a server."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from headwater.api.changes.feeds import ChangeFeeds
from headwater.api.guard.caller import OwnStreams
from headwater.api.limits import Limits, Work
from headwater.api.lookups import Lookups, PersonalValues
from headwater.api.reading import Applied, Live, Made, Page, Row
from headwater.api.reads.deployment import DeploymentLook, DeploymentReader
from headwater.api.reads.log import InstanceReader, TopicLedgers
from headwater.api.reads.scans import AuditReader, ObservationReader
from headwater.api.requests.query import DISTANCE, RELEVANCE, Query, typed_beyond
from headwater.api.service import Service
from headwater.api.waiting.captured import CapturedReader
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.observation import ObservationRegistry, Report
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import EarlierReceiptsUnread
from headwater.commands.receipt import Receipt, RecordedEvent
from headwater.commands.sending.prepared_command import PreparedCommand
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.envelope import Envelope, Position, decode
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import SourcePosition, sources_of
from headwater.projections.errors import GenerationMissing
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.upkeep.view_metrics import Sample
from headwater.projections.registry import ViewRegistry
from headwater.projections.table.patch import Place
from headwater.projections.table.types import format_time
from headwater.projections.view import View
from tests.support.filtered import fulfils

PARTITIONS = 4
MODULES = ("listings",)
"""Of most tests: to make an app of all samples takes three times as long."""


@dataclass
class FakeGateway:
    """Answers with `receipt` or raises `error`; otherwise accepts, one event a command."""

    registry: CommandRegistry
    error: Exception | None = None
    answer: Receipt | None = None
    known: dict[str, Receipt] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    ready: bool = True
    awaited: int = 0

    def send(self, commands: Sequence[PreparedCommand]) -> list[asyncio.Task[Receipt]]:
        sent = [decode(command.entry.value) for command in commands]
        self.calls += [
            {
                "type": each.type,
                "command_id": each.id,
                "expected_version": each.expected_version,
                "correlation_id": each.correlation_id,
                "causation_id": each.causation_id,
                "traceparent": each.traceparent,
                **({} if each.actor is None else {"actor": each.actor}),
            }
            for each in sent
        ]
        return [asyncio.create_task(self.decide(command)) for command in commands]

    async def decide(self, command: PreparedCommand) -> Receipt:
        if self.error is not None:
            raise self.error
        return self.answer or receipt(command.stream, command.type, fingerprint=command.fingerprint)

    async def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        self.calls.append({"receipt": command_id, "stream": stream, "origin": origin})
        if command_id not in self.known and not self.ready:
            raise EarlierReceiptsUnread(command_id)
        return self.known.get(command_id)


def receipt(stream: str = "listing/L1", command_type: str = "listing.sell", **changes: Any) -> Receipt:
    """An accepted receipt of version 7, with `changes`."""
    given: dict[str, Any] = {
        "command_id": "c-1",
        "type": command_type,
        "stream": stream,
        "outcome": "accepted",
        "version": 7,
        "fingerprint": "f",
        "time": "2026-01-02T03:04:05.000000Z",
        "events": (RecordedEvent(f"{stream}/7", "listing.sold", Position(3, 1042)),),
    }
    return Receipt(**(given | changes))


@dataclass
class FakeRecorder:
    """Takes every report, or raises `error`."""

    reports: list[Report[Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    async def record(self, reports: Sequence[Report[Any]], **options: Any) -> list[Position]:
        if self.error is not None:
            raise self.error
        self.reports += reports
        self.options = options
        return [Position(0, number) for number in range(len(reports))]


@dataclass
class FakeEvents:
    """Events by position, and the ends of their sources."""

    events: dict[Position, Envelope] = field(default_factory=dict)
    error: Exception | None = None
    slow: list[str] = field(default_factory=list)

    async def event_at(self, position: Position) -> Envelope | None:
        if self.error is not None:
            raise self.error
        return self.events.get(position)

    async def record_at(self, place: SourcePosition) -> Record | None:
        return None  # the records of captured tables here are in the log of `captured`

    async def slow_code(self) -> Sequence[str]:
        return self.slow

    async def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        if self.error is not None:
            raise self.error
        ends = dict.fromkeys((source for topic in topics for source in sources_of(topic, PARTITIONS)), 0)
        for position in self.events:
            source = str(position.partition)
            ends[source] = max(ends[source], position.offset + 1)
        return ends

    async def hold_events(self, ends: Mapping[str, int]) -> bool:
        return bool(self.events)


@dataclass
class FakeGenerations:
    """Generation 1 of every view but the `missing` ones."""

    missing: set[str] = field(default_factory=set)
    made_views: dict[str, Made] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    number: int = 1
    tag: str = ""
    error: Exception | None = None
    paused: dict[str, datetime] = field(default_factory=dict)

    async def live(self, view: View, fresh: bool = False) -> Live:
        if self.error is not None:
            raise self.error
        if view.name in self.missing:
            raise GenerationMissing(view.name)
        return Live(view, self.number, self.tag or view.tag, self.base)

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        if self.error is not None:
            raise self.error
        return self.made_views

    async def paused_since(self, view: View) -> datetime | None:
        return self.paused.get(view.name)


def _places(applied: Mapping[str, int | Place]) -> Applied:
    """An offset alone is the place of an event's first patch."""
    return {source: at if isinstance(at, Place) else Place(at, 0) for source, at in applied.items()}


@dataclass
class MemoryReader:
    """A store in memory.

    rows: by view and key; applied: by patches partition and source; guards_of: by key; many: what was read at once.
    """

    name: str
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    applied: dict[int, dict[str, int | Place]] = field(default_factory=dict)
    guards_of: dict[str, dict[str, int | Place]] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    refreshed: int = 0
    asked: int = 0
    guarded: int = 0
    polled: int = 0
    many: list[tuple[str, list[str]]] = field(default_factory=list)
    failed: bool = False

    def __post_init__(self) -> None:
        self.has_guards, self.needs_refresh = self.name != "postgres", self.name == "elasticsearch"

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        self._raise()
        self.many.append((live.view.name, list(keys)))
        rows = {key: row for key, row in self.rows.get(live.view.name, {}).items() if live.shows(row)}
        return {key: {name: rows[key][name] for name in columns or rows[key]} for key in keys if key in rows}

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        self.polled += 1
        return self.reached

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        self.guarded += 1
        return {key: _places(self.guards_of[key]) for key in keys if key in self.guards_of}

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        self.asked += 1
        return {partition: _places(applied) for partition, applied in self.applied.items()}

    async def refresh(self, live: Live) -> None:
        self.refreshed += 1

    async def find(self, live: Live, query: Query) -> Page:
        self._raise()
        query = live.limited(query)
        every = self.rows.get(live.view.name, {}).values()
        rows = [row for row in every if all(fulfils(row, filter_) for filter_ in query.filters)]
        total = len(rows)
        steps = [step for step in query.order if step.column not in (RELEVANCE, DISTANCE)]

        def compare(a: list[Any], b: list[Any]) -> int:
            for step, left, right in zip(steps, a, b, strict=True):
                if left != right:
                    if left is None or right is None:
                        return 1 if left is None else -1
                    return (-1 if left < right else 1) * (-1 if step.descending else 1)
            return 0

        def values(row: Row) -> list[Any]:
            return [row[step.column] for step in steps]

        rows.sort(key=functools.cmp_to_key(lambda a, b: compare(values(a), values(b))))
        if query.beyond is not None:
            typed = typed_beyond(live.view, query)
            beyond = [
                format_time(each) if isinstance(each, datetime) else str(each) if isinstance(each, date) else each
                for each in typed
            ]
            rows = [row for row in rows if compare(values(row), beyond) > 0]
        page = rows[: query.limit]
        shown = [{name: row.get(name) for name in query.stored(live.view)} for row in page]
        return Page(shown, values(page[-1]) if len(rows) > len(page) else None, total if query.count else None)

    async def search(self, live: Live, query: Query) -> Page:
        page = await self.find(live, replace(query, count=True))
        matches = [{"score": 1.0} for _ in page.rows] if query.includes_matches else ()
        return Page(page.rows, page.last, page.total, {"city": [("SACRAMENTO", 2)]}, matches)

    def _raise(self) -> None:
        if self.errors:
            self.failed = True
            raise self.errors.pop(0)


@dataclass
class FakeOverseer(DeploymentReader):
    """A deployment in which a test decides what is found. looks: how many were taken."""

    found: DeploymentLook = field(default_factory=lambda: DeploymentLook((), Sample()))
    built: list[Generation] = field(default_factory=list)
    waiting: dict[str, Letter] = field(default_factory=dict)
    records: list[AuditRecord] = field(default_factory=list)
    looks: int = 0

    async def look(self) -> DeploymentLook:
        self.looks += 1
        return self.found

    async def generations(self, view: str) -> Sequence[Generation]:
        return [generation for generation in self.built if generation.view == view]

    async def letters(self) -> Mapping[str, Letter]:
        return self.waiting

    async def trail(self, since: datetime) -> Sequence[AuditRecord]:
        return self.records


@dataclass(frozen=True, kw_only=True)
class FakeService(Service):
    """A service whose parts are fakes that a test prepares and looks into; `log` has what is followed and audited."""

    gateway: FakeGateway
    recorder: FakeRecorder
    events: FakeEvents
    generations: FakeGenerations
    readers: Mapping[str, MemoryReader]
    overseer: FakeOverseer
    log: MemoryLog


class Declared(NamedTuple):
    """What modules declare."""

    commands: CommandRegistry
    observations: ObservationRegistry
    processes: ProcessRegistry
    sources: SourceRegistry
    views: ViewRegistry


@functools.cache
def declared(modules: tuple[str, ...]) -> Declared:
    """Found once per process: to look through the modules takes longer than most requests."""
    return Declared(
        CommandRegistry.load(modules),
        ObservationRegistry.load(modules),
        ProcessRegistry.load(modules),
        SourceRegistry.load(modules),
        ViewRegistry.load(modules),
    )


def fake_service(
    limits: Limits | None = None,
    modules: Sequence[str] = MODULES,
    log: MemoryLog | None = None,
    readers: Mapping[str, MemoryReader] | None = None,
) -> FakeService:
    """A service of fakes, made of `modules`."""
    found = declared(tuple(modules))
    commands, observations, views = found.commands, found.observations, found.views.views
    events, generations, log = FakeEvents(), FakeGenerations(), log or MemoryLog(PARTITIONS)
    readers = readers or {name: MemoryReader(name) for name in ("postgres", "elasticsearch", "valkey")}
    captured = CapturedReader(log, found.sources.sources)
    waiter = Waiter(events, captured, generations, TopicLedgers(log, PARTITIONS), views, PARTITIONS, PARTITIONS)
    work, personal = Work(), PersonalValues(commands, observations)
    own_streams = OwnStreams(commands)
    lookups = Lookups(views, readers, generations, waiter, own_streams, personal, work.reads)
    return FakeService(
        commands=commands,
        own_streams=own_streams,
        personal=personal,
        views=views,
        observations=observations,
        gateway=FakeGateway(commands),
        recorder=FakeRecorder(),
        events=events,
        audit=AuditReader(log),
        observed=ObservationReader(log),
        captured=captured,
        processes=found.processes.processes,
        instances=InstanceReader(log),
        generations=generations,
        readers=readers,
        waiter=waiter,
        lookups=lookups,
        work=work,
        feeds=ChangeFeeds(log, generations, readers, lookups, own_streams, PARTITIONS),
        overseer=FakeOverseer(),
        log=log,
        limits=limits or Limits(),
    )


def catch_up(service: FakeService) -> None:
    """The log has an event, and every store has applied all that may come."""
    service.events.events[Position(2, 100)] = event("listing/L1", 1, "listing.withdrawn", listing_id="L1")
    for reader in service.readers.values():
        reader.applied = {number: {str(source): 2**40 for source in range(PARTITIONS)} for number in range(PARTITIONS)}


def event(stream: str, version: int, event_type: str, **data: Any) -> Envelope:
    """An event as the log has it."""
    return Envelope(
        id=f"{stream}/{version}",
        type=event_type,
        stream=stream,
        time=datetime(2026, 1, 2, 3, 4, version, tzinfo=UTC),
        data=data,
        sequence=version,
    )
