"""What the public topics of views have, from the ledgers in the topics of their generations."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.api.limits.work import Threads
from headwater.api.ports import Applied, GenerationGone, Live
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.ports import EventLog
from headwater.projections.stores.topic.records import (
    LEDGER,
    PUBLISHED,
    Progress,
    Publication,
    Publications,
    progress_from_json,
    topic_of,
)


class _Known(NamedTuple):
    """The last ledger before the end of a partition; None: there is none."""

    end: int
    progress: Progress | None


class TopicLedgers:
    """Reads what the public topic of a view has.

    One question for all ends tells whether anything is new, and only that is read. Only the poll of a view reads it,
    so nothing is read twice at once.
    """

    name = "topic"
    has_guards = False

    def __init__(self, log: EventLog, patch_partitions: int, threads: int = 4) -> None:
        self._log, self._patch_partitions = log, patch_partitions
        self._publications, self._published_end = Publications(log), -1
        self._publishing = threading.Lock()
        self._known: dict[str, dict[tuple[str, int], _Known]] = {}
        """By view, then by the topic of its generation and the partition."""
        self._threads = Threads(threads, "topic-ledgers")

    async def open(self) -> None:
        """Nothing to do: the log connects at its first use."""

    async def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._threads.close()

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """None: see LedgerReader."""
        return {}

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """By partition of `patches`, what the public topic has; without those in which it does not show this generation
        yet, or another one. Raises LogUnavailable, or GenerationGone if the generation was dropped."""
        return await self._threads.run(self._read, live)

    def _read(self, live: Live) -> Mapping[int, Applied]:
        topic = topic_of(live.view.name, live.generation)
        places = [(topic, partition) for partition in range(self._patch_partitions)]
        try:
            ends = self._log.ends([(PUBLISHED, 0), *places])
        except LogUnavailable as error:
            if self._log.stored_ends(topic):
                raise
            raise GenerationGone from error
        publication = self._publication(live.view.name, ends[PUBLISHED, 0])
        if publication is None or publication.generation != live.generation:
            return {}
        earlier = self._known.get(live.view.name, {})
        known = {place: self._last(*place, ends[place], earlier.get(place)) for place in places}
        self._known[live.view.name] = known
        return {
            partition: progress.ledger.applied
            for (_, partition), (_, progress) in known.items()
            if progress is not None and progress.shown == publication.offset
        }

    def _publication(self, view: str, end: int) -> Publication | None:
        """The one that is valid before this end of the topic with all of them."""
        with self._publishing:
            publication = self._publications.of(view, fresh=end != self._published_end)
            self._published_end = end
        return publication

    def _last(self, topic: str, partition: int, end: int, known: _Known | None) -> _Known:
        """The last ledger before `end`; known: before an earlier end."""
        if known is None or known.end > end or known.progress is None:
            value = self._log.last(topic, partition, LEDGER)
            return _Known(end, None if value is None else progress_from_json(value))
        values = [record.value for record in self._log.read(topic, partition, known.end, end) if record.key == LEDGER]
        last = values[-1] if values else None
        return _Known(end, known.progress if last is None else progress_from_json(last))
