"""Appends observations: no handler decides them, so they are acknowledged as soon as they are stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

from headwater.commands.declaring.observation import Report, stream_of, to_entry
from headwater.eventlog.envelope import Position, partition_of
from headwater.eventlog.ports import EventLog


class ObservationRecorder:
    """Appends observations to the topic `observations`; for one asyncio loop at a time."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def record(
        self,
        reports: Sequence[Report[Any]],
        *,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        actor: str | None = None,
    ) -> list[Position]:
        """Append all of `reports` and return their positions, once all are stored. actor: who reports them, if known.

        Raises TooLarge if the record of one is: then none is stored. Raises LogUnavailable: then any of them may be
        stored, and all can be sent again.
        """
        if not reports:
            return []
        now, partitions = datetime.now(UTC), self._log.partitions
        entries = [to_entry(report, now, correlation_id, traceparent, actor) for report in reports]
        countdown = _Countdown(len(reports))
        placed = []
        for report, entry in zip(reports, entries, strict=True):
            partition = partition_of(stream_of(report), partitions)
            stored = self._log.submit(entry, partition)
            stored.add_done_callback(countdown.count)
            placed.append((partition, stored))
        await countdown.done
        return [Position(partition, stored.result()) for partition, stored in placed]


class _Countdown:
    """Wakes the loop once, when all records are stored or the first one failed; counted in any thread."""

    def __init__(self, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._left = number
        self._lock = threading.Lock()

    def count(self, stored: Future[int]) -> None:
        error = stored.exception()
        with self._lock:
            self._left -= 1
            ready = self._left == 0 or error is not None
        if ready and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, error)

    def _wake(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
