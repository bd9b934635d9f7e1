"""What a request waits for, and polls of views that are shared by all requests which wait for the same view."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from headwater.api.limits import Limits
from headwater.api.reading import Applied, GenerationGone, Generations, LedgerReader, Live
from headwater.api.requests.parameters import read_integer
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import SourcePosition, topic_and_partition
from headwater.projections.table.changes import NotAChange, key_columns, key_text, view_key
from headwater.projections.table.patch import Place
from headwater.projections.table.rows import RowClass
from headwater.projections.view import View

FIRST_PAUSE_S: Final = 0.002
MAX_PAUSE_S: Final = 0.020
NOWHERE: Final = Place(-1, 0)
MIN_INTERVAL_S: Final = 0.004
"""Between the starts of two polls, however many requests begin to wait meanwhile."""
LINGER_S: Final = 0.1
"""How long a poll that nobody waits for stays: those who wait come back for the next one."""


@dataclass(frozen=True, slots=True)
class After:
    """The positions that a request waits for, and the time limit, for all views of its answer."""

    token: str
    wait_ms: int
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, plain: Mapping[str, str], limits: Limits) -> After | None:
        """`after=` and `wait_ms=`, None if there is nothing to wait for; raises BadParameter."""
        wait_ms = read_integer("wait_ms", plain.get("wait_ms", str(limits.wait_ms)), 0, limits.max_wait_ms)
        return cls(plain["after"], wait_ms) if "after" in plain else None

    async def pause(self, poll: int) -> bool:
        """Pause after this poll, from 0: longer and longer, but not beyond the time limit; False if the time is up."""
        left_s = self.left_s
        if left_s <= 0:
            return False
        await asyncio.sleep(min(pause_s(poll + 1), left_s))
        return True

    @property
    def left_s(self) -> float:
        """How long the request may still wait; negative if its time is up."""
        return self.began + self.wait_ms / 1000 - time.monotonic()


def pause_s(poll: int) -> float:
    """How long to wait before this poll, from 0, which is at once."""
    return min(FIRST_PAUSE_S * 1.5 ** min(poll - 1, 20), MAX_PAUSE_S) if poll else 0.0


@dataclass(frozen=True, slots=True)
class Awaited:
    """A place that a view must have applied.

    key: of the row that it changes, None if unknown. number: of the last patch of its event for that row.
    includes_earlier: it stands for earlier places too: for all of the same partition of `patches`, or of all partitions
    if there is no key. A row's guard is not enough then.
    """

    place: SourcePosition
    key: str | None
    number: int = 0
    includes_earlier: bool = False

    def applied(self, applied: Applied) -> bool:
        """Whether the applied places include it."""
        return applied.get(self.place.source, NOWHERE) >= (self.offset, self.number)

    @property
    def offset(self) -> int:
        """In its source."""
        return self.place.position.offset

    @property
    def is_guarded(self) -> bool:
        """Whether the guard of a row can say that it is applied."""
        return self.key is not None and not self.includes_earlier

    @property
    def is_unknown(self) -> bool:
        """Whether the record, and so the row, may still be found."""
        return self.key is None and not self.includes_earlier


def first_unapplied(live: Live, ledger: Mapping[int, Applied], source: str, patch_partitions: int) -> int:
    """The offset in a source below which every partition of `patches` was applied."""
    slowest = min(ledger.get(partition, {}).get(source, NOWHERE) for partition in range(patch_partitions))
    return max(slowest.offset + 1, live.bulk_ends.get(source, 0))


def row_key(table: RowClass, record: Record) -> str | None:
    """The key of the row that a record of a captured table, or of a view, is about; None if it is about none, as a
    heartbeat."""
    if is_heartbeat_key(record.key, table.topic()):
        return None
    key = record.key.encode(errors="surrogateescape")
    try:
        return view_key(key) if issubclass(table, ViewRow) else key_text(key_columns(table), key)
    except NotAChange:
        return None


def place_before(source: str, end: int) -> SourcePosition:
    """The last place in a source before this offset."""
    topic, partition = topic_and_partition(source)
    return SourcePosition(topic, Position(partition, end - 1))


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


@dataclass(frozen=True, slots=True)
class Reading:
    """A store in which views are looked at. generations: which generation of a view is meant."""

    reader: LedgerReader
    generations: Generations


@dataclass(frozen=True, slots=True)
class Seen:
    """What one poll found.

    guards: of the requested rows. ledger: by partition of `patches`; None if nobody needed it.
    """

    live: Live
    guards: Mapping[str, Applied]
    ledger: Mapping[int, Applied] | None


@dataclass(eq=False, slots=True)
class _Look:
    """A request that waits for a poll, at `due_s` of the loop's clock or earlier."""

    due_s: float
    keys: Set[str]
    needs_ledger: bool
    answer: asyncio.Future[Seen | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Polls:
    """The polls of one process, one per view and store that is waited for; each is a task that ends by itself."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str, str], _Poll] = {}

    async def look(
        self, view: View, reading: Reading, within_s: float, keys: Set[str], needs_ledger: bool
    ) -> Seen | None:
        """What the view has applied, read within this time, or earlier for others; None if its generation was dropped.

        keys: of rows whose guards are needed. Raises GenerationMissing or StoreUnavailable.
        """
        name = (view.name, view.tag, reading.reader.name)
        poll = self._running.get(name)
        if poll is None or poll.task.done():
            poll = self._running[name] = _Poll(view, reading)
            poll.task.add_done_callback(lambda _: self._end(name, poll))
        look = _Look(asyncio.get_running_loop().time() + within_s, keys, needs_ledger)
        poll.add(look)
        try:
            return await look.answer
        finally:
            look.answer.cancel()  # a client that left waits no more

    def _end(self, name: tuple[str, str, str], poll: _Poll) -> None:
        if self._running.get(name) is poll:
            del self._running[name]


class _Poll:
    """Reads one view in one store again and again, while somebody waits."""

    def __init__(self, view: View, reading: Reading) -> None:
        self._view, self._reading = view, reading
        self._looks: list[_Look] = []
        self._added = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def add(self, look: _Look) -> None:
        """Answer this one with the next poll."""
        self._looks.append(look)
        self._added.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        earliest_s = loop.time()
        looks: list[_Look] = []
        try:
            while True:
                self._looks = [lookup for lookup in self._looks if not lookup.answer.done()]
                due_s = min((lookup.due_s for lookup in self._looks), default=None)
                at_s = loop.time() + LINGER_S if due_s is None else max(due_s, earliest_s)
                if due_s is None or at_s > loop.time():
                    self._added.clear()
                    # one that came just as the wait ended is there, although the wait was not woken by it
                    if not await self._was_added_by(at_s) and due_s is None and not self._looks:
                        return
                    continue
                earliest_s = loop.time() + MIN_INTERVAL_S
                looks, self._looks = self._looks, []
                await self._answer(looks)
        finally:  # the application ends
            for lookup in (*looks, *self._looks):
                lookup.answer.cancel()

    async def _was_added_by(self, at_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                return await self._added.wait()
        return False

    async def _answer(self, looks: list[_Look]) -> None:
        try:
            seen = await self._read(looks)
        except GenerationGone:
            seen = None
        except Exception as error:  # noqa: BLE001 - each of those who wait raises it
            for lookup in looks:
                if not lookup.answer.done():
                    lookup.answer.set_exception(error)
            return
        for lookup in looks:
            if not lookup.answer.done():
                lookup.answer.set_result(seen)

    async def _read(self, looks: list[_Look]) -> Seen:
        live, reader = await self._reading.generations.live(self._view), self._reading.reader
        keys = sorted(set().union(*(lookup.keys for lookup in looks)))
        guards, ledger = await asyncio.gather(
            reader.guards(live, keys) if keys else _nothing(),
            reader.ledger(live) if any(lookup.needs_ledger for lookup in looks) else _nothing(),
        )
        return Seen(live, guards or {}, ledger)


async def _nothing() -> None: ...
