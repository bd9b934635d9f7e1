"""Reads a view: its live generation, from the first available of its stores."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson

from headwater.api.guard.caller import Caller, no_row
from headwater.api.limits import MAX_PAGE_BYTES, fitting_rows, next_portion, stored_bytes
from headwater.api.requests.filters import AnyOf, Condition, Filter
from headwater.api.requests.query import Query
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.table.patch import Place, places_from_json
from headwater.projections.view import View

Row = dict[str, Any]
Applied = Mapping[str, Place]
"""The highest applied place, by source."""
Answer = TypeVar("Answer")
AWAY_S: Final = 1.0
"""How long a store that did not answer is skipped, if the view has another store."""
FIRST_ROWS: Final = 100
"""Rows that are read at once before their size is known."""
FIRST_KEYS: Final = 25
"""Likewise, of rows by key."""
MAX_KEYS_AT_ONCE: Final = 1_000

logger = logging.getLogger(__name__)


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
        return (*(condition.column for condition in self.of_reader), *(() if expiry is None else (expiry.column,)))

    def shows(self, row: Row) -> bool:
        """Whether a row with the columns of the conditions fulfils them."""
        expiry = self.view.expiry
        if expiry is not None and self.read_at is not None and expiry.has_come(row.get(expiry.column), self.read_at):
            return False
        return all(row.get(condition.column) in condition.values for condition in self.of_reader)

    def limited(self, query: Query) -> Query:
        """The query with the conditions."""
        missing = tuple(condition for condition in self.conditions if condition not in query.filters)
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


class GenerationGone(Exception):
    """The generation of a cached answer was dropped meanwhile: read the registry again."""


class NotRanked(Exception):
    """The store has no ranking for this query, or not in this generation: use a store that sorts rows."""


Reader = TypeVar("Reader", bound=ViewReader)


class Readers(Generic[Reader]):
    """Stores of one view that can give the same answer; earlier ones are preferred. view: its name."""

    def __init__(self, view: str, readers: Sequence[Reader]) -> None:
        self._view, self.stores = view, readers
        self._away_until: dict[str, float] = {}

    async def ask(self, call: Callable[[Reader], Awaitable[Answer]]) -> Answer:
        """The answer of the first available store; raises StoreUnavailable or NotRanked if there is none."""
        now = time.monotonic()
        there = [store for store in self.stores if self._away_until.get(store.name, 0.0) <= now]
        for reader in (there or self.stores)[:-1]:
            try:
                return await call(reader)
            # a server without persistence loses generations, and an index may be deleted by hand
            except (NotRanked, GenerationGone, GenerationMissing):
                continue
            except StoreUnavailable as error:
                self._away_until[reader.name] = time.monotonic() + AWAY_S
                logger.warning(
                    'view "%s": reading from another store, %s is unavailable: %s', self._view, reader.name, error
                )
        return await call((there or self.stores)[-1])


class KeyReaders(Readers[ViewReader]):
    """The stores of one view, for look-ups by key: those only for that, as caches, first, then in declared order."""

    def __init__(self, readers: Mapping[str, ViewReader], view: View) -> None:
        stores = sorted((store for store in view.stores if store.answers), key=lambda store: store.finds)
        super().__init__(view.name, [readers[store.name] for store in stores])


async def read_live(
    generations: Generations, view: View, ask: Callable[[Live], Awaitable[Answer]], caller: Caller | None = None
) -> tuple[Answer, Live]:
    """Read the live generation; if it was dropped meanwhile, read the registry and try once more.

    caller: who reads its rows; without one, no row exists if the rows are for some readers.
    """

    async def found(*, fresh: bool = False) -> Live:
        live = await generations.live(view, fresh=fresh)
        return live if caller is None else live.readable_by(caller.readable(view))

    live = await found()
    try:
        return await ask(live), live
    except GenerationGone:
        live = await found(fresh=True)
    try:
        return await ask(live), live
    except GenerationGone as error:
        raise GenerationMissing(view.name, live.generation) from error


async def in_key_portions(
    keys: Sequence[str], read: Callable[[Sequence[str]], Awaitable[Mapping[str, Row]]], budget_bytes: int
) -> tuple[dict[str, Row], int]:
    """The rows of the first of these keys, up to the portion that reaches the budget, and how many keys these are.

    A store cannot stop in the middle of such an answer, so that many keys are not read at once before the sizes of
    their rows are known. read: the rows of some of the keys.
    """
    rows, size_bytes, done, count = dict[str, Row](), 0, 0, FIRST_KEYS
    while done < len(keys) and size_bytes < budget_bytes:
        values = await read(keys[done : done + count])
        rows |= values
        found_bytes = sum(stored_bytes(row.values()) for row in values.values())
        done, size_bytes = min(done + count, len(keys)), size_bytes + found_bytes
        count = next_portion(count, found_bytes, budget_bytes - size_bytes, MAX_KEYS_AT_ONCE)
    return rows, done


async def in_portions(query: Query, read: Callable[[Query], Awaitable[Page]]) -> Page:
    """The page of a query, read in parts, from a store that cannot stop in the middle of an answer.

    It ends early with the row that reaches MAX_PAGE_BYTES; `last` is where to continue. Total and facets are those of
    the first part.

    read: the page of a part, which ends early likewise (see `fitting`).
    """
    first = page = await read(replace(query, limit=min(query.limit, FIRST_ROWS)))
    rows, matches = list(page.rows), list(page.matches)
    size_bytes, portion_bytes = 0, _size_bytes(page)
    while page.last is not None and len(rows) < query.limit:
        size_bytes += portion_bytes
        if size_bytes >= MAX_PAGE_BYTES:
            break
        left = query.limit - len(rows)
        limit = next_portion(len(page.rows), portion_bytes, MAX_PAGE_BYTES - size_bytes, left)
        page = await read(replace(query, limit=limit, beyond=tuple(page.last), count=False))
        rows += page.rows
        matches += page.matches
        portion_bytes = _size_bytes(page)
    return replace(first, rows=rows, matches=matches or first.matches, last=page.last)


def fitting(sizes_bytes: Iterable[int]) -> int:
    """How many of the first rows, with these sizes, are on a page: up to the one that reaches MAX_PAGE_BYTES."""
    return fitting_rows(sizes_bytes, MAX_PAGE_BYTES)


def _size_bytes(page: Page) -> int:
    return len(orjson.dumps(page.rows))


class DocumentLedgers:
    """The ledgers of a store that has each as a document, with the next offset and what was applied."""

    async def ledgers(self, live: Live) -> Mapping[int, Mapping[str, Any]]:
        """The documents of a generation, by partition of `patches`; none if the store does not have it."""
        raise NotImplementedError

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """See LedgerReader."""
        return {
            partition: places_from_json(ledger["applied"]) for partition, ledger in (await self.ledgers(live)).items()
        }

    async def next_offsets(self, live: Live) -> Mapping[int, int]:
        """See ViewReader."""
        return {partition: ledger["next"] for partition, ledger in (await self.ledgers(live)).items()}
