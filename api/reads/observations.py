"""Observations with values of a person, found by reading their topic: a limited part of it per page."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Final

from headwater.api.limits.requests import MAX_PAGE_BYTES
from headwater.api.limits.work import Threads
from headwater.api.ports import FIRST_PLACE, ObservationsFound
from headwater.eventlog.envelope import Position
from headwater.eventlog.personal.sealed_text import START
from headwater.eventlog.ports import EventLog, topic_ends, topic_firsts
from headwater.eventlog.topics import OBSERVATIONS

MAX_OFFSETS: Final = 50_000
"""Offsets that one page may read."""
MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Likewise, of their records."""


class ObservationReader:
    """Reads `observations`, in threads, because reading blocks; partition by partition, in the order of arrival.

    The topic has no index by persons, so a page says how far it has searched.
    """

    def __init__(self, log: EventLog, threads: int = 2, max_offsets: int = MAX_OFFSETS) -> None:
        self._log, self._max_offsets = log, max_offsets
        self._threads = Threads(threads, "observations")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def page(self, key_ids: Collection[str], limit: int, place: Position = FIRST_PLACE) -> ObservationsFound:
        """At most `limit` observations with a value that is sealed with one of these keys, from a place on.

        There are fewer if they are large, or if the page reads as much of the log as it may. Raises LogUnavailable.
        """
        return await self._threads.run_while_wanted(self._page, key_ids, limit, place)

    def _page(
        self, unwanted: threading.Event, key_ids: Collection[str], limit: int, place: Position
    ) -> ObservationsFound:
        partitions = range(self._log.partitions)
        firsts = topic_firsts(self._log, OBSERVATIONS, partitions)
        ends = topic_ends(self._log, OBSERVATIONS, partitions)
        bounds = [(firsts[each], ends[each]) for each in partitions]
        texts = [f'"{START}{key_id}:'.encode() for key_id in key_ids]
        found, size_bytes, read_bytes, left = list[bytes](), 0, 0, self._max_offsets
        for partition, (first, end) in enumerate(bounds):
            if partition < place.partition:
                continue
            start = max(first, place.offset) if partition == place.partition else first
            stop = min(end, start + left)
            for record in self._log.read(OBSERVATIONS, partition, start, stop):
                value = record.value or b""
                read_bytes += len(value)
                if any(text in value for text in texts):
                    found.append(value)
                    size_bytes += len(value)
                is_full = len(found) >= limit or size_bytes >= MAX_PAGE_BYTES or read_bytes >= MAX_READ_BYTES
                if is_full or unwanted.is_set():
                    stop = record.offset + 1
                    left = stop - start  # nothing of the next partition
                    break
            left -= max(0, stop - start)
            if stop < end:
                return _found(found, bounds, Position(partition, stop))
        return _found(found, bounds, None)


def _found(records: list[bytes], bounds: list[tuple[int, int]], place: Position | None) -> ObservationsFound:
    sizes = [end - first for first, end in bounds]
    searched = sum(sizes)
    if place is not None:
        searched = sum(sizes[: place.partition]) + place.offset - bounds[place.partition][0]
    return ObservationsFound(records, place, searched, sum(sizes))
