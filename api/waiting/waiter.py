"""Waits until a view has applied positions of the log, for `after=`.

An event that the view does not handle counts as applied, and so does a position in a source that it does not read, such
as an observation's (`observations/3:1042`), because no answer can lack it. For an event that it handles, and for a
change of a captured row, the key of the view's row decides the partition of its patch, and so the ledger (or the row's
own guard) that must cover its offset. If the record cannot be read any more, every partition's ledger must cover it;
heartbeats move these within a second. What a position in a captured database stands for is found by
`api/waiting/awaited.py`.

A view over other views reads their rows in their public topics. So these are awaited first: a topic has an event once
the ledger in the topic of the generation that it shows has it, because rows and ledger are written together. All rows
that the public topic has then are awaited in the view over it, like changes of captured rows; and so on in a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from typing import NamedTuple

from headwater.api.errors import BadParameter, NotCaughtUp, ViewPaused
from headwater.api.limits import Admission, Shared
from headwater.api.reading import (
    Applied,
    GenerationGone,
    Generations,
    LedgerReader,
    Live,
    Made,
    ViewReader,
)
from headwater.api.waiting.awaited import (
    After,
    Awaited,
    EventReader,
    Polls,
    Reading,
    Seen,
    first_unapplied,
    pause_s,
    row_key,
)
from headwater.api.waiting.captured import MARK, CapturedReader, CapturedWaiter, ChangedRows, DatabasePosition
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.stores.names import patch_partition
from headwater.projections.view import View

LEDGER_EVERY = 4
"""If rows have guards, the ledger is also read every few polls, because rows may be old while ledgers advance."""
MAX_POSITIONS = 100
MAX_WAITING = 2_000
"""Requests of one process that wait at once."""


class Token(NamedTuple):
    """What a request names in `after=`: positions in the log, and in captured databases."""

    places: tuple[SourcePosition, ...]
    positions: tuple[DatabasePosition, ...]


class Behind(NamedTuple):
    """How far a view is behind. events: offsets between the ends of the log and what every partition's ledger has
    applied; None if unknown. has_begun: whether it has applied anything, as far as is known."""

    events: int | None
    has_begun: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """The generations that public topics show; of these, only the ledgers say what they have.

    What bulk has read is in the topic of a generation before the public topic has it.
    """

    generations: Generations

    async def live(self, view: View, fresh: bool = False) -> Live:
        """See `Generations`."""
        return replace(await self.generations.live(view, fresh), bulk_ends={})

    async def made(self, fresh: bool = False) -> Mapping[str, Made]:
        """See `Generations`."""
        return await self.generations.made(fresh)

    async def paused_since(self, view: View) -> datetime | None:
        """See `Generations`."""
        return await self.generations.paused_since(view)


class Waiter:
    """Waits for views; `partitions` are those of a source's topic, `patch_partitions` those of `patches`.

    topics: reads what the public topics of views have. views: all that are declared, by name.
    """

    def __init__(
        self,
        events: EventReader,
        sources: CapturedReader,
        generations: Generations,
        topics: LedgerReader,
        views: Mapping[str, View],
        partitions: int,
        patch_partitions: int,
    ) -> None:
        self._events, self._generations, self._views = events, generations, views
        self._topics = Reading(topics, Shown(generations))
        self._polls, self._admission = Polls(), Admission("requests with after=", MAX_WAITING, 0)
        self._captured, self._rows = CapturedWaiter(sources), ChangedRows(sources, patch_partitions)
        self._looks = dict[tuple[str, str, str], Shared[Behind]]()
        self.partitions, self._patch_partitions = partitions, patch_partitions

    def read_token(self, token: str) -> Token:
        """The positions in a token, a comma-separated list; raises BadParameter."""
        parts = token.split(",")
        if len(parts) > MAX_POSITIONS:
            raise BadParameter(
                "after",
                f"has {len(parts)} positions, more than {MAX_POSITIONS}: send only the last of each partition",
            )
        try:
            places = {SourcePosition.parse(part) for part in parts if MARK not in part}
        except ValueError as error:
            raise BadParameter("after", f"is invalid: {error}") from error
        for place in places:
            if place.position.partition >= self.partitions or place.position.offset >= 2**63:
                raise BadParameter(
                    "after", f"names {place}, which is out of range: the log has {self.partitions} partitions"
                )
        positions = {self._captured.read(part) for part in parts if MARK in part}
        return Token(tuple(sorted(places)), tuple(sorted(positions)))

    async def wait(self, view: View, reader: ViewReader, after: After | None) -> None:
        """Return when `view` has applied every position; immediately if there is none.

        Raises BadParameter, SourceNotCaughtUp, NotCaughtUp, ViewPaused (at once), GenerationMissing, LogUnavailable,
        StoreUnavailable or Overloaded. NotCaughtUp and ViewPaused may be about another view, whose rows it reads.
        """
        if after is not None:
            async with self._admission.place():
                token = self.read_token(after.token)
                await self._wait_with_inner(view, Reading(reader, self._generations), token, after)

    async def reach(self, view: View, reader: ViewReader, after: After | None) -> None:
        """Likewise, but a view over other views need only have read every position: rows of these may come later."""
        if after is not None:
            async with self._admission.place():
                reading = Reading(reader, self._generations)
                await self._wait(view, reading, self.read_token(after.token), [], after)

    async def _wait_with_inner(self, view: View, reading: Reading, token: Token, after: After) -> bool:
        """Wait for the views that it reads, each in its public topic, then for itself; returns what `_wait` does."""
        topics = [
            table.topic()
            for table in view.tables.values()
            if issubclass(table, ViewRow)
            and await self._wait_with_inner(self._views[table.view], self._topics, token, after)
        ]
        return await self._wait(view, reading, token, topics, after)

    async def _wait(self, view: View, reading: Reading, token: Token, topics: Sequence[str], after: After) -> bool:
        """Wait for the positions that the view itself reads. topics: also for the rows that these have now.

        Returns whether any position concerns the view: whether it may have changed one of its rows.
        """
        topics = [*topics, *await self._captured.captured(view, token.positions, after)]
        missing = [Awaited(place, None) for place in token.places if place.topic in view.topics]
        missing += await self._rows.lacked(view, reading, topics, after)
        concerned, polls = bool(topics), count()
        while missing:
            left_s = after.left_s
            if any(source.is_unknown for source in missing):
                # a position that does not exist yet may appear while we wait
                unknown = [source.place for source in missing if source.is_unknown]
                missing = [source for source in missing if not source.is_unknown] + await self._awaited(view, unknown)
            if missing:
                concerned, poll = True, next(polls)
                within_s = min(pause_s(poll), max(left_s, 0.0))
                missing = await self._not_applied(view, reading, missing, poll, within_s)
            if missing and (since := await reading.generations.paused_since(view)) is not None:
                raise ViewPaused(view.name, after.token, since)
            if missing and left_s <= 0:
                behind = await self._behind(view, reading)
                has_begun = behind.has_begun or not view.has_own_query
                raise NotCaughtUp(view.name, after.token, after.wait_ms, behind.events, has_begun=has_begun)
        return concerned

    async def _awaited(self, view: View, places: Sequence[SourcePosition]) -> list[Awaited]:
        awaited = []
        for place in places:
            table = view.tables.get(place.topic)
            if table is not None:
                record = await self._events.record_at(place)
                key = None if record is None else row_key(table, record)
                awaited.append(Awaited(place, None if key is None else view.layout.patched_key(place.topic, key)))
                continue
            event = await self._events.event_at(place.position) if place.topic == EVENTS else None
            rows = None if event is None else view.rows_of(event)
            if rows is None:
                awaited.append(Awaited(place, None))
            else:
                last = {key: number for number, key in enumerate(rows)}
                awaited += [Awaited(place, key, number) for key, number in last.items()]
        return awaited

    async def _not_applied(
        self, view: View, reading: Reading, awaited: Sequence[Awaited], poll: int, within_s: float
    ) -> list[Awaited]:
        """Those of `awaited` that a poll within this time does not find applied."""
        has_guards = reading.reader.has_guards
        keys = {target.key for target in awaited if has_guards and target.is_guarded and target.key is not None}
        needs_ledger = not (poll % LEDGER_EVERY and has_guards and all(target.is_guarded for target in awaited))
        seen = await self._polls.look(view, reading, within_s, keys, needs_ledger)
        if seen is None:  # swapped and dropped a moment ago: the next poll uses the new one
            return list(awaited)
        return [target for target in awaited if not self._is_applied(view, seen, target)]

    def _is_applied(self, view: View, seen: Seen, awaited: Awaited) -> bool:
        if awaited.offset < seen.live.bulk_ends.get(awaited.place.source, 0):
            return True
        if awaited.is_guarded and awaited.applied(seen.guards.get(awaited.key or "", {})):
            return True
        if (ledger := seen.ledger) is None:
            return False
        partitions: Sequence[int] = range(self._patch_partitions)
        if awaited.key is not None:
            partitions = (patch_partition(view, seen.live.tag, awaited.key, self._patch_partitions),)
        return all(awaited.applied(ledger.get(partition, {})) for partition in partitions)

    async def _behind(self, view: View, reading: Reading) -> Behind:
        """How far the view is behind; requests that ask at the same time share one answer."""
        name = (view.name, view.tag, reading.reader.name)
        look = self._looks.setdefault(name, Shared(partial(self._ask_behind, view, reading), 0.0))
        return await look.current()

    async def _ask_behind(self, view: View, reading: Reading) -> Behind:
        try:
            live = await reading.generations.live(view, fresh=True)
            ledger = await reading.reader.ledger(live)
            ends = await self._events.ends(view.topics)
        except (GenerationGone, GenerationMissing, StoreUnavailable, LogUnavailable):
            return Behind(None, has_begun=True)
        has_begun = any(ledger.values()) or bool(live.bulk_ends)
        return Behind(lag(live, ledger, ends, self._patch_partitions), has_begun)


def lag(live: Live, ledger: Mapping[int, Applied], ends: Mapping[str, int], patch_partitions: int) -> int:
    """Offsets from the slowest ledger's position to the ends; an upper bound, because transaction markers count."""
    firsts = {source: first_unapplied(live, ledger, source, patch_partitions) for source in ends}
    return sum(max(0, end - firsts[source]) for source, end in ends.items())
