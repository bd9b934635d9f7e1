"""Changed rows as events for followers: read in portions, once the store has them, with texts that followers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

from headwater.api.changes.patch_tail import Touch, Touched
from headwater.api.changes.subscription import Change
from headwater.api.guard.caller import Caller
from headwater.api.limits.requests import next_portion
from headwater.api.lookups import Lookups
from headwater.api.ports import GenerationGone, Generations, Live, Row, ViewReader
from headwater.api.reading import KeyReaders
from headwater.api.requests.query import every_column
from headwater.projections.errors import GenerationMissing
from headwater.projections.view import View

FIRST_PAUSE_S: Final = 0.005
MAX_PAUSE_S: Final = 0.100
BEHIND_S: Final = 1.0
"""How long a store may be behind before the registry is read again."""
FIRST_ROWS: Final = 100
MAX_ROWS: Final = 500
PORTION_BYTES: Final = 4 * 1024 * 1024
"""Of the events that are made at once, as far as the portion before tells."""


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
            count = next_portion(len(some), size_bytes(changes), PORTION_BYTES, MAX_ROWS)

    def forget(self) -> None:
        """Read all rows again: those of another generation may differ."""
        self._texts.clear()

    async def _read(self, touched: Touched) -> list[Change]:
        known = {key: made for key, touch in touched.items() if (made := self._made(key, touch)) is not None}
        missing = {key: touch for key, touch in touched.items() if key not in known}
        rows = await self._rows(missing) if missing else {}
        for key, touch in missing.items():
            known[key] = self._texts[key] = Change.of(key, rows.get(key), touch, self._view.readable_by)
        return [known[key] for key in touched]

    def _made(self, key: str, touch: Touch) -> Change | None:
        """The event that was made for the same touch, for another follower."""
        made = self._texts.get(key)
        return made if made is not None and made.touch == touch else None

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
        shown = await self._lookups.show(self._view, list(stored.values()), every_column(self._view), self._caller)
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
