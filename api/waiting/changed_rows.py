"""Finds the rows that were changed in topics of rows: in those of captured tables, and in those of other views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from headwater.api.ports import Applied, CapturedSources, Live
from headwater.api.reading import read_live
from headwater.api.waiting.awaited import After, Awaited, first_unapplied, place_before
from headwater.api.waiting.polls import Reading
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.stores.names import patch_partition
from headwater.projections.view import View

MAX_OFFSETS: Final = 2_000
"""Of one partition that are read to find the rows; with more, all ledgers must cover the last one."""
MAX_ROWS: Final = 50
"""Rows that are awaited one by one; with more, ledgers must cover the last one in each partition of `patches`."""


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """Offsets of a source that a view may lack: from the first to the one before `end`."""

    first: int
    end: int


class ChangedRows:
    """What a view must have applied of topics of rows; patch_partitions: of `patches`."""

    def __init__(self, sources: CapturedSources, patch_partitions: int) -> None:
        self._sources, self._patch_partitions = sources, patch_partitions

    async def lacked(self, view: View, reading: Reading, topics: Sequence[str], after: After) -> list[Awaited]:
        """The last change of each row that is in these topics now, committed or not, as far as the view may lack it.

        Raises LogUnavailable, StoreUnavailable or GenerationMissing.
        """
        ends = await self._sources.stored_ends(topics) if topics else {}
        if not any(ends.values()):
            return []
        ledger, live = await read_live(reading.generations, view, reading.reader.ledger)
        unapplied = {
            source: _Unapplied(first, end)
            for source, end in ends.items()
            if (first := first_unapplied(live, ledger, source, self._patch_partitions)) < end
        }
        committed = await self._committed(unapplied, after)
        found: list[Awaited] = []
        for source, part in unapplied.items():
            if source in committed and part.end - part.first <= MAX_OFFSETS:
                found += await self._rows(view, live, ledger, source, part)
            else:
                found.append(Awaited(place_before(source, part.end), None, includes_earlier=True))
        return found

    async def _committed(self, unapplied: Mapping[str, _Unapplied], after: After) -> set[str]:
        """The sources in which all these offsets can be read; those missing when the time is up still have an open
        transaction of Kafka."""
        open_, polls = set(unapplied), count()
        while open_:
            ends = await self._sources.committed_ends(sorted(open_))
            open_ = {source for source in open_ if ends[source] < unapplied[source].end}
            if open_ and not await after.pause(next(polls)):
                break
        return set(unapplied) - open_

    async def _rows(
        self, view: View, live: Live, ledger: Mapping[int, Applied], source: str, part: _Unapplied
    ) -> list[Awaited]:
        topic, _ = topic_and_partition(source)
        rows = await self._sources.changed_rows(view.tables[topic], source, part.first, part.end)
        found: list[Awaited] = []
        last: dict[int, Awaited] = {}
        for row, offset in sorted(rows.items(), key=lambda row: row[1]):
            key = view.layout.patched_key(topic, row)
            partition = patch_partition(view, live.tag, key, self._patch_partitions)
            awaited = Awaited(place_before(source, offset + 1), key)
            if not awaited.applied(ledger.get(partition, {})):
                found.append(awaited)
                last[partition] = Awaited(awaited.place, key, includes_earlier=True)
        return found if len(found) <= MAX_ROWS else list(last.values())
