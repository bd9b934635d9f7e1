"""What the routes need of the log and the stores, independent of the adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, Unpack

from headwater.api.event_pages import AuditPage, EventFilter
from headwater.api.guard.readable import no_row
from headwater.api.requests.filters import AnyOf, Condition, Filter
from headwater.api.requests.query import Query
from headwater.commands.codec import Body
from headwater.commands.declaring.observation import Report
from headwater.commands.receipt import Receipt
from headwater.commands.sending.outgoing import Options, Outgoing
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.capturing.capture_progress import Commit
from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.declaring import Source
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import SourcePosition
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.rebuild_progress import RebuildProgress
from headwater.projections.generations.upkeep.view_metrics import Sample
from headwater.projections.table.patch import Place
from headwater.projections.table.rows import RowClass
from headwater.projections.view import View
from headwater.replay.parts import Part

Row = dict[str, Any]
Applied = Mapping[str, Place]
"""The highest applied place, by source."""


class Resource(Protocol):
    """A resource that the application opens when it starts and closes when it ends."""

    async def open(self) -> None:
        """Connect, or start to connect; must not fail if a server is temporarily unavailable."""

    async def close(self) -> None:
        """Close connections and threads."""


class Gateway(Protocol):
    """Sends commands to the log and returns their receipts."""

    @property
    def ready(self) -> bool:
        """Whether every earlier receipt is known."""

    @property
    def awaited(self) -> int:
        """How many commands wait for their receipts."""

    async def submit(self, command_type: str, body: Body, **options: Unpack[Options]) -> Receipt:
        """Append a command and return its receipt.

        Raises UnknownCommand, MalformedCommand, TooLarge, LogUnavailable or Unanswered.
        """

    def send(self, commands: Sequence[Outgoing], *, linger: bool = False) -> Sequence[asyncio.Future[Receipt]]:
        """Append commands in this order; the future of each has its receipt, LogUnavailable or Unanswered.

        linger: they may wait a few milliseconds for others.
        """

    async def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        """The receipt of a command of a stream, None if there is none; origin: who chose the id, None: any."""


class Recorder(Protocol):
    """Appends observations to the log."""

    async def record(
        self,
        reports: Sequence[Report[Any]],
        *,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        actor: str | None = None,
    ) -> list[Position]:
        """Append all and return their positions, once they are stored; raises LogUnavailable."""


class EventReader(Protocol):
    """Single events by their position."""

    async def event_at(self, position: Position) -> Envelope | None:
        """The event at `position`; None if there is none (not yet, or it was compacted)."""

    async def record_at(self, place: SourcePosition) -> Record | None:
        """The record at this place of any source; None if there is none."""

    async def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last record of each source in these topics; raises LogUnavailable."""

    async def hold_events(self, ends: Mapping[str, int]) -> bool:
        """Whether sources have other records than heartbeats before these offsets; raises LogUnavailable."""

    async def slow_code(self) -> Sequence[str]:
        """What handlers report of code that does not return, one line each; raises LogUnavailable."""


class CapturedSources(Protocol):
    """Captured databases, and the topics of rows, as far as the log has them. Each method raises LogUnavailable.

    name: of a source.
    """

    @property
    def sources(self) -> Mapping[str, Source]:
        """By name."""

    def source(self, name: str) -> Source:
        """The source with this name; raises UnknownSource."""

    async def last_commit(self, name: str) -> Commit | None:
        """The last transaction whose changes, and those of all before it, are in the log; None if there is none."""

    async def stored_ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last record, committed or not, of each partition of these topics, by its id."""

    async def committed_ends(self, sources: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last committed record of each of these partitions, by its id."""

    async def changed_rows(self, table: RowClass, source: str, start: int, end: int) -> Mapping[str, int]:
        """The last offset of each row that was changed from `start` to `end` in a partition, by the row's key."""

    async def snapshot(self, name: str) -> Snapshot | None:
        """The last snapshot that the connector reported; None if it reported none."""


class Auditor(Protocol):
    """The events of all streams."""

    async def page(self, starts: Mapping[int, int], event_filter: EventFilter, limit: int) -> AuditPage:
        """At most `limit` events from these offsets on, reading a limited part of the log; raises LogUnavailable."""


FIRST_PLACE: Final = Position(0, 0)


class ObservationsFound(NamedTuple):
    """A page of observations. place: where the next one begins; None: everything is searched.

    searched, size: how many offsets of the topic have been searched so far, and how many it has.
    """

    records: Sequence[bytes]
    place: Position | None
    searched: int
    size: int


class Observed(Protocol):
    """The observations that are stored."""

    async def page(self, key_ids: Collection[str], limit: int, place: Position = FIRST_PLACE) -> ObservationsFound:
        """At most `limit` observations with a value that is sealed with one of these keys, from a place on, searching a
        limited part of the log; raises LogUnavailable."""


class InstanceRecords(NamedTuple):
    """A part of a partition with process instances. next_offset: where the next part begins. ended: nothing is left."""

    records: Sequence[Record]
    next_offset: int
    ended: bool


class InstanceLog(Protocol):
    """The log of process instances. Each method raises LogUnavailable."""

    async def ends(self) -> Sequence[int]:
        """The offset after the last record of each partition."""

    async def portion(self, partition: int, start: int) -> InstanceRecords:
        """A limited part of a partition from an offset on."""


@dataclass(frozen=True, slots=True)
class Live:
    """The generation of a view that answers queries.

    tag: of the view; that of an earlier version while a new version is being built. bulk_ends: by source, the offset
    below which it had all events from the start. readable: what rows must fulfil so that they exist for whoever reads;
    None: nobody has said who reads, so that of a view whose rows are for some readers, no row exists. read_at: the time
    at which rows are expired or not; None: those that are expired count too.
    """

    view: View
    generation: int
    tag: str
    bulk_ends: Mapping[str, int]
    readable: tuple[Filter, ...] | None = None
    read_at: datetime | None = field(default_factory=lambda: datetime.now(UTC))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What each row must fulfil that a store returns; every store adds them to every read."""
        expiry = self.view.expiry
        if expiry is None or self.read_at is None:
            return self.of_reader
        later = Filter(expiry.column, "gt", (expiry.bound(self.read_at),))
        return (*self.of_reader, AnyOf((later, Filter(expiry.column, "is_null", (True,)))))

    @property
    def of_reader(self) -> tuple[Filter, ...]:
        """Those of the conditions that depend on who reads."""
        if not self.view.readable_by:
            return ()
        return no_row(self.view) if self.readable is None else self.readable

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of the conditions."""
        expiry = self.view.expiry
        return (*(each.column for each in self.of_reader), *(() if expiry is None else (expiry.column,)))

    def shows(self, row: Row) -> bool:
        """Whether a row with the columns of the conditions fulfils them."""
        expiry = self.view.expiry
        if expiry is not None and self.read_at is not None and expiry.has_come(row.get(expiry.column), self.read_at):
            return False
        return all(row.get(each.column) in each.values for each in self.of_reader)

    def limited(self, query: Query) -> Query:
        """The query with the conditions."""
        missing = tuple(each for each in self.conditions if each not in query.filters)
        return replace(query, filters=(*query.filters, *missing)) if missing else query

    def readable_by(self, readable: tuple[Filter, ...]) -> Live:
        """The same for a reader for whom only rows exist that fulfil these; see `Caller.readable`."""
        return replace(self, readable=readable) if self.view.readable_by else self

    def with_expired(self) -> Live:
        """The same with the rows that are expired."""
        return replace(self, read_at=None)

    @property
    def patch_tag(self) -> str:
        """Begins the keys of the patches that it takes."""
        return self.view.patch_tag(self.generation, self.tag)


@dataclass(frozen=True, slots=True)
class Made:
    """A view of selected events, which never changes.

    source, version: the declared view that it was made from, and its version then.
    selection: of which events; empty: all.
    positions: by source, the offset before which it has all events.
    at: when it was made.
    """

    name: str
    source: str
    version: int
    selection: str
    positions: Mapping[str, int]
    at: datetime | None


class Generations(Protocol):
    """Which generation of each view is live."""

    async def live(self, view: View, fresh: bool = False) -> Live:
        """The live generation, up to 250 ms old unless `fresh`; raises GenerationMissing or StoreUnavailable."""

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        """The views made with `replay rebuild --as`, by name, as current as `live`; raises StoreUnavailable."""

    async def paused_since(self, view: View) -> datetime | None:
        """Since when `view` is paused, as current as `live`; None if it is not. Raises StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order.

    last: the values that the last row is sorted by, if more rows follow. total: the number of rows on all pages, if
    requested; a search always has it. facets, matches: only of a search; facets are (value, number of rows) by column;
    matches say how each row matches.
    """

    rows: Sequence[Row]
    last: Sequence[Any] | None
    total: int | None = None
    facets: Mapping[str, Sequence[tuple[Any, int]]] | None = None
    matches: Sequence[Mapping[str, Any]] = ()


class LedgerReader(Protocol):
    """Reads what one store has applied.

    Raises StoreUnavailable or LogUnavailable, or GenerationGone if the generation was dropped.

    has_guards: whether rows say themselves what was applied to them.
    """

    name: str
    has_guards: bool

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """What the guards of these rows say was applied to them; without rows that have none."""

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by `patches` partition."""


class ViewReader(LedgerReader, Protocol):
    """Reads one store. A row that does not fulfil `Live.conditions` is answered like one that is missing.

    Raises StoreUnavailable, or GenerationGone if the generation was dropped.

    needs_refresh: whether it is a Searcher, whose `find` and `search` lack what was applied since the last `refresh`.
    """

    needs_refresh: bool

    async def get(self, live: Live, key: str) -> Row | None:
        """The visible row of this key."""

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The current visible rows of these keys, without keys that have no row.

        columns: the required columns (empty: all), so that a store need not send the others.
        """

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """The `patches` offset up to which the generation has applied everything, by partition."""


class Finder(ViewReader, Protocol):
    """A store that also finds rows by their columns."""

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows for the query; raises NotRanked if the store finds rows by rankings only."""


class Searcher(Finder, Protocol):
    """A store that also searches texts."""

    async def search(self, live: Live, query: Query) -> Page:
        """The rows that match the query's text and place, with total and facets."""

    async def refresh(self, live: Live) -> None:
        """Make everything that was applied visible to `find` and `search`."""


@dataclass(frozen=True)
class DeploymentLook:
    """What one look at a whole deployment has found.

    parts: their states, with what helps. sample: the views in their stores, and the age of their rows.
    """

    parts: Sequence[Part]
    sample: Sample


class Overseer(Protocol):
    """What operators see of a deployment. Each method reads; it raises LogUnavailable or StoreUnavailable."""

    async def look(self) -> DeploymentLook:
        """The state of everything; a server that does not answer is one of the problems, and no error."""

    async def generations(self, view: str) -> Sequence[Generation]:
        """All generations of a view, the oldest first."""

    async def rebuilds(self) -> Sequence[RebuildProgress]:
        """How far the rebuilds are that run now, in any process."""

    async def letters(self) -> Mapping[str, Letter]:
        """The last dead letters, by key."""

    async def trail(self, since: datetime) -> Sequence[AuditRecord]:
        """The last record of each action of operators since a time, in the order of their beginnings."""


class GenerationGone(Exception):
    """The generation of a cached answer was dropped meanwhile: read the registry again."""


class NotRanked(Exception):
    """The store has no ranking for this query, or not in this generation: use a store that sorts rows."""
