"""Which generation of a view its public topic shows: the last record of the view in the topic `published-views`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.times import now_ms
from headwater.projections.stores.topic.records import PUBLISHED

LOOK_S: Final = 0.5
REMEMBERED: Final = 4
TIMEOUT_S: Final = 30.0


class Publication(NamedTuple):
    """The generation that is shown, and the offset of the record that says so.

    before: those that were shown before, the last one first; at most REMEMBERED.
    """

    generation: int
    offset: int
    before: tuple[int, ...] = ()


class Publications:
    """Reads and writes publications. Raises EventLogError."""

    def __init__(self, log: EventLog, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._log, self._clock = log, clock
        self._known: dict[str, Publication] = {}
        self._looked = float("-inf")

    def publish(self, view: str, generation: int) -> None:
        """Let the public topic of `view` show this generation."""
        known = self.of(view, fresh=True)
        earlier = (known.generation, *known.before) if known is not None else ()
        before = [each for each in earlier if each != generation][:REMEMBERED]
        self._write(view, " ".join(map(str, (generation, *before))).encode())

    def withdraw(self, view: str) -> None:
        """Let no generation be shown."""
        self._write(view, None)

    def of(self, view: str, *, fresh: bool = False) -> Publication | None:
        """The publication of a view, at most LOOK_S old; fresh: as it is now."""
        if fresh or self._clock() - self._looked > LOOK_S:
            self._known = self._read()
            self._looked = self._clock()
        return self._known.get(view)

    def _read(self) -> dict[str, Publication]:
        if not self._log.stored_ends(PUBLISHED):
            return {}
        found: dict[str, Publication] = {}
        for record in self._log.read(PUBLISHED, 0, 0):
            if record.value is None:
                found.pop(record.key, None)
            else:
                generation, *before = map(int, record.value.split())
                found[record.key] = Publication(generation, record.offset, tuple(before))
        return found

    def _write(self, view: str, value: bytes | None) -> None:
        self._log.submit(Entry(PUBLISHED, view, value, now_ms()), 0).result(TIMEOUT_S)
        self._looked = float("-inf")
