"""What followers are sent: changed rows, once the store has them; erasures and expired rows, which no patch names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, cast
from weakref import WeakValueDictionary

from headwater.api.changes.patch_tail import Touch, Touched
from headwater.api.changes.subscription import Change
from headwater.api.guard.caller import Caller
from headwater.api.limits import next_portion
from headwater.api.lookups import Lookups
from headwater.api.reading import Finder, GenerationGone, Generations, KeyReaders, Live, Row, ViewReader, read_live
from headwater.api.requests.filters import Filter
from headwater.api.requests.query import MAX_ROWS, Order, Query, every_column
from headwater.eventlog.erasing.person import FORGOTTEN_S
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.installed import installed
from headwater.projections.errors import GenerationMissing
from headwater.projections.table.expiry import Expiry
from headwater.projections.view import View

FIRST_PAUSE_S: Final = 0.005
MAX_PAUSE_S: Final = 0.100
BEHIND_S: Final = 1.0
"""How long a store may be behind before the registry is read again."""
FIRST_ROWS: Final = 100
MAX_PORTION_ROWS: Final = 500
PORTION_BYTES: Final = 4 * 1024 * 1024
"""Of the events that are made at once, as far as the portion before tells."""
LOOK_S: Final = 1.0
CLOCKS: Final = timedelta(seconds=5)
"""How far the clocks of API processes may differ, and how long a read may take. A row is looked for so much later than
it expires, because a follower may have read it in another process until then."""
NO_PATCH: Final = Touch(0, -1, None)
"""What touches a row that expires: before all patches, so no store has to apply anything first."""


class ChangedRows:
    """The rows of one view."""

    def __init__(
        self, view: View, readers: KeyReaders, lookups: Lookups, generations: Generations, caller: Caller
    ) -> None:
        """caller: for whom columns of other views are looked up."""
        self._view, self._readers, self._lookups, self._generations = view, readers, lookups, generations
        self._caller = caller
        self._texts = WeakValueDictionary[str, Change]()
        """The latest event of each row, while a follower has it."""

    async def portions(self, touched: Touched) -> AsyncIterator[list[Change]]:
        """The touched rows, once the store has applied what touched them.

        Raises ProjectionError.
        """
        keys, start, count = list(touched), 0, FIRST_ROWS
        while start < len(keys):
            some = {key: touched[key] for key in keys[start : start + count]}
            changes = await self._read(some)
            start += len(some)
            yield changes
            count = next_portion(len(some), size_bytes(changes), PORTION_BYTES, MAX_PORTION_ROWS)

    def forget(self) -> None:
        """Read all rows again: those of another generation may differ."""
        self._texts.clear()

    async def _read(self, touched: Touched) -> list[Change]:
        known = {key: row for key, touch in touched.items() if (row := self._made(key, touch)) is not None}
        missing = {key: touch for key, touch in touched.items() if key not in known}
        rows = await self._rows(missing) if missing else {}
        for key, touch in missing.items():
            known[key] = self._texts[key] = Change.of(key, rows.get(key), touch, self._view.readable_by)
        return [known[key] for key in touched]

    def _made(self, key: str, touch: Touch) -> Change | None:
        """The event that was made for the same touch, for another follower."""
        text = self._texts.get(key)
        return text if text is not None and text.touch == touch else None

    async def _rows(self, touched: Touched) -> Mapping[str, Row]:
        async def read(reader: ViewReader) -> Mapping[str, Row]:
            while True:
                # all rows, since followers share them: `OwnRows` leaves out those that do not exist for its follower
                live = (await self._generations.live(self._view)).readable_by(())
                try:
                    await _applied(reader, live, touched.values())
                    return await reader.get_many(live, list(touched))
                except GenerationGone:
                    now = await self._generations.live(self._view, fresh=True)
                    if (now.patch_tag, now.generation) == (live.patch_tag, live.generation):
                        raise  # this store has lost it: another one may have it
                except _Behind:
                    continue  # a swap may be the reason: read the registry again

        try:
            stored = await self._readers.ask(read)
        except GenerationGone as error:
            raise GenerationMissing(self._view.name) from error
        rows, shown = list(stored.values()), list[Row]()
        while len(shown) < len(rows):
            shown += await self._lookups.show(self._view, rows[len(shown) :], every_column(self._view), self._caller)
        return dict(zip(stored, shown, strict=True))


def size_bytes(changes: Iterable[Change]) -> int:
    """Of their events."""
    return sum(len(change.event) for change in changes)


class _Behind(Exception):
    """The store has not applied the patches within BEHIND_S."""


async def _applied(reader: ViewReader, live: Live, wanted: Iterable[Touch]) -> None:
    """Wait until the generation has applied everything in `wanted`; raises _Behind after a while, or GenerationGone."""
    latest: dict[int, int] = {}
    for touch in wanted:
        latest[touch.partition] = max(touch.offset, latest.get(touch.partition, touch.offset))
    pause_s, waited_s = FIRST_PAUSE_S, 0.0
    while True:
        next_offsets = await reader.next_offsets(live)
        if not next_offsets:
            raise GenerationGone(f"{reader.name} has no ledger")
        if all(next_offsets.get(partition, 0) > offset for partition, offset in latest.items()):
            return
        if waited_s > BEHIND_S:
            raise _Behind
        await asyncio.sleep(pause_s)
        waited_s += pause_s
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


class Erasures:
    """Looks for erasures of anybody, for one feed. known: the number of the last one after which followers read anew;
    None before the first look."""

    def __init__(self) -> None:
        self.known: int | None = None
        self._found: int | None = None
        self._found_at = 0.0

    async def begin(self) -> None:
        """Remember those that were before followers read rows. If nobody can say it now, the first answer counts as an
        erasure."""
        self.known = await self._look()

    async def are_new(self) -> bool:
        """Whether followers must read anew: somebody was erased, and every process has forgotten the key."""
        if self._found is None:
            number = await self._look()
            if number is not None and number != self.known:  # lower, if the store of keys was restored
                self._found, self._found_at = number, time.monotonic()
            return False
        if time.monotonic() - self._found_at < FORGOTTEN_S:
            return False
        self.known, self._found = self._found, None
        return True

    @staticmethod
    async def _look() -> int | None:
        """The number of the last erasure; None if the store of keys does not answer: then nobody opens values."""
        try:
            return await asyncio.to_thread(lambda: installed().last_erasure())
        except KeysUnavailable:
            return None


class ExpiredRows:
    """Looks for the expired rows of one view in the first of its stores that finds rows."""

    def __init__(self, view: View, expiry: Expiry, stores: Sequence[ViewReader], generations: Generations) -> None:
        finding = {store.name for store in view.stores if store.finds}
        self.store = cast(Finder, next(store for store in stores if store.name in finding))
        self._view, self._expiry, self._generations = view, expiry, generations
        self._looked_to = self._bound()
        self._next_look_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again, and rows may have expired since."""
        if time.monotonic() < self._next_look_at:
            return False
        self._next_look_at = time.monotonic() + LOOK_S
        return self._looked_to != self._bound()  # the bound of days moves once a day

    async def look(self) -> Touched | None:
        """Those that expired since the last look; None if they are more than MAX_ROWS.

        Call it while the store has everything that was sent to followers, who else may have newer rows than it has.
        Raises ProjectionError; then the next look finds them.
        """
        name, start, end = self._view.key_name, self._looked_to, self._bound()
        passed = (Filter(self._expiry.column, "gt", (start,)), Filter(self._expiry.column, "lte", (end,)))
        query = Query(passed, (Order(name),), MAX_ROWS, fields=(name,))
        page, _ = await read_live(
            self._generations,
            self._view,
            lambda live: self.store.find(live.readable_by(()).with_expired(), query),
        )
        self._looked_to = end
        return None if page.last is not None else {row[name]: NO_PATCH for row in page.rows}

    def _bound(self) -> datetime | date:
        return self._expiry.bound(datetime.now(UTC) - CLOCKS)
