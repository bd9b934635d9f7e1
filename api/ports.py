"""What the routes need of the log and the stores, whichever adapter serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from api.query import Query
from api.reads.audit import AuditPage, EventFilter
from commands.declaring.observation import Report
from commands.receipt import Receipt
from eventlog.envelope import Envelope, Position
from projections.table.patch import Place
from projections.table.view import TableView

Row = dict[str, Any]
Applied = Mapping[int, Place]
"""The highest place that was applied, by source partition."""


class Resource(Protocol):
    """Something that the application opens when it starts and closes when it ends."""

    async def open(self) -> None:
        """Connect, or start to; must not fail where a server is away for the moment."""

    async def close(self) -> None:
        """Let go of connections and threads."""


class Gateway(Protocol):
    """The way of a command into the log and of its receipt back."""

    @property
    def ready(self) -> bool:
        """Whether every earlier receipt is known."""

    async def submit(
        self,
        command_type: str,
        body: bytes | Mapping[str, Any],
        *,
        command_id: str | None = None,
        expected_version: int | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        traceparent: str | None = None,
    ) -> Receipt:
        """Append a command and return its receipt.

        Raises UnknownCommand, MalformedCommand, TooLarge, LogUnavailable or Unanswered.
        """

    async def receipt(self, command_id: str) -> Receipt | None:
        """The receipt of a command, None where none is known."""


class Recorder(Protocol):
    """The way of observations into the log."""

    async def record(
        self, reports: Sequence[Report[Any]], *, correlation_id: str | None = None, traceparent: str | None = None
    ) -> list[Position]:
        """Append all and return where they are, once they are stored; raises LogUnavailable."""


class EventReader(Protocol):
    """Single events by their place in the log."""

    async def event_at(self, position: Position) -> Envelope | None:
        """The event at `position`; None where there is none (not yet, or compacted away)."""

    async def ends(self) -> Mapping[int, int]:
        """The offset after the last event of each partition; raises LogUnavailable."""


class Auditor(Protocol):
    """The events of all streams."""

    async def page(self, starts: Mapping[int, int], event_filter: EventFilter, limit: int) -> AuditPage:
        """At most `limit` events from these offsets on, after a bounded amount of reading; raises LogUnavailable."""


@dataclass(frozen=True, slots=True)
class Live:
    """The generation of a view that answers queries.

    tag: what its patches are keyed by; of an earlier version while a new one is being built. bulk_ends: by partition of
    `events`, the offset below which all events are in it from the start.
    """

    view: TableView
    generation: int
    tag: str
    bulk_ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Made:
    """A view of some of the events, which nothing changes any more.

    source, version: the declared view that it was made from, and its version then. selection: of which events; empty
    for all. positions: the offset before which it has each partition's events. at: when it was made.
    """

    name: str
    source: str
    version: int
    selection: str
    positions: Mapping[int, int]
    at: datetime | None


class Generations(Protocol):
    """Which generation of each view is live."""

    async def live(self, view: TableView, fresh: bool = False) -> Live:
        """The live generation, at most 250 ms old, or asked for anew; raises GenerationMissing, StoreUnavailable."""

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        """The views made with `replay rebuild --as`, by name: as `live` has them; raises StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order.

    last: the values that the last row is ordered by, where more rows follow. total: the rows of all pages, where that
    is asked for, as a search does. facets, matches: of a search only; facets are (value, number of rows) by column;
    matches tell, for each row, how it matches.
    """

    rows: Sequence[Row]
    last: Sequence[Any] | None
    total: int | None = None
    facets: Mapping[str, Sequence[tuple[Any, int]]] | None = None
    matches: Sequence[Mapping[str, Any]] = ()


class ViewReader(Protocol):
    """One store, read. Raises StoreUnavailable, or GenerationGone where the generation was dropped."""

    name: str

    async def get(self, live: Live, key: str) -> Row | None:
        """The visible row of this key."""

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The visible rows of these keys, as of now; keys without one are left out.

        columns: those that must be there (empty: all), so that a store need not send the others.
        """

    async def guard(self, live: Live, key: str) -> Applied:
        """What the row itself says was applied to it; empty where the store keeps no guards."""

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by `patches` partition."""

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """The `patches` offset up to which the generation has taken in everything, by partition."""


class Finder(ViewReader, Protocol):
    """A store that also finds rows by their columns."""

    async def find(self, live: Live, query: Query) -> Page:
        """The rows that the query asks for, one page of them."""


class Searcher(Finder, Protocol):
    """A store that also searches texts."""

    async def search(self, live: Live, query: Query) -> Page:
        """The rows that match the query's text and place, with total and facets."""

    async def refresh(self, live: Live) -> None:
        """Make everything that was applied visible to `find` and `search`."""


class GenerationGone(Exception):
    """The generation that a cached answer named was dropped meanwhile: ask the registry anew."""
