"""What records of the log say about process instances: how many there are, which have stopped, and what is due."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headwater.commands.reacting.instance_index import scheduled_of
from headwater.commands.reacting.instance_store import PARKED_PREFIX, parked_place
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import Record

MAX_KNOWN: Final = 200_000
"""Instances of one partition, and records that wait in it, which a page can count."""
MAX_SHOWN: Final = 100
"""Instances in a list, and records that wait for one."""
LATE_MS: Final = 5_000
"""How long after its time a timer may fire if all is well."""


class TooMany(Exception):
    """A partition has more instances, or more waits in it, than a page can count."""

    def __init__(self) -> None:
        super().__init__(
            f"A partition has more than {MAX_KNOWN:,} instances, or more waits in it: too many for this page. The "
            "metrics headwater_process_… of the handlers count them, and an instance can still be found by its key."
        )


class Timer(NamedTuple):
    """The next timer of an instance. due_ms: since 1970."""

    due_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an instance. timers: how many it has set; late: how many of them; next: the first of them."""

    stopped: bool
    timers: int
    late: int
    next: Timer | None


@dataclass(frozen=True)
class Listed:
    """An instance in a list. waiting: records that wait for it."""

    process: str
    key: str
    waiting: int
    timer: Timer | None


@dataclass
class Total:
    """Of one process. waiting: records. late: timers that should have fired."""

    instances: int = 0
    stopped: int = 0
    waiting: int = 0
    timers: int = 0
    late: int = 0


class Totals:
    """Counts the instances of all processes, one partition after another."""

    def __init__(self, now_ms: int) -> None:
        """now_ms: the current time, since 1970."""
        self.of_process: dict[str, Total] = defaultdict(Total)
        self.stopped: list[Listed] = []
        self.due: list[Listed] = []
        """Those whose timers are due first, also the late ones."""
        self._late_ms = now_ms - LATE_MS
        self._known: dict[str, Known] = {}
        self._waiting: dict[str, set[int]] = defaultdict(set)
        self._waits = 0

    def add(self, records: Iterable[Record]) -> None:
        """Take records of the partition, in their order; raises TooMany."""
        for record in records:
            if record.key.startswith(PARKED_PREFIX):
                self._park(*parked_place(record.key), is_there=record.value is not None)
            elif record.value is None:
                self._known.pop(record.key, None)
            else:
                self._known[record.key] = self._read(record.value)
        if len(self._known) > MAX_KNOWN or self._waits > MAX_KNOWN:
            raise TooMany

    def end_partition(self) -> None:
        """All records of a partition were added: count what is left of them."""
        for key in {**self._known, **self._waiting}:
            self._count(key, self._known.get(key))
        self.due = heapq.nsmallest(MAX_SHOWN, [*self.due, *self._due()], key=lambda each: each.timer or Timer(0, ""))
        self._known.clear()
        self._waiting.clear()
        self._waits = 0

    def _read(self, value: bytes) -> Known:
        scheduled = scheduled_of(value)
        timers = [Timer(timer.due_ms, name) for name, timer in scheduled.timers.items()]
        stopped = scheduled.stopped is not None
        late = 0 if stopped else sum(map(self.is_late, timers))
        return Known(stopped, len(timers), late, min(timers, default=None))

    def _park(self, key: str, inbox_offset: int, *, is_there: bool) -> None:
        waiting = self._waiting[key]
        before = len(waiting)
        (waiting.add if is_there else waiting.discard)(inbox_offset)
        self._waits += len(waiting) - before
        if not waiting:
            del self._waiting[key]

    def _count(self, key: str, known: Known | None) -> None:
        listed = self._listed(key, known)
        total = self.of_process[listed.process]
        total.waiting += listed.waiting
        if known is None:  # what waits for an instance that newer code will begin
            return
        total.instances += 1
        total.timers += known.timers
        total.late += known.late
        if known.stopped:
            total.stopped += 1
            if len(self.stopped) < MAX_SHOWN:
                self.stopped.append(listed)

    def _due(self) -> Iterator[Listed]:
        """Instances whose timers can fire."""
        for key, known in self._known.items():
            if known.next is not None and not known.stopped:
                yield self._listed(key, known)

    def is_late(self, timer: Timer) -> bool:
        """Whether a timer should have fired."""
        return timer.due_ms < self._late_ms

    def _listed(self, key: str, known: Known | None) -> Listed:
        process, _, instance = key.partition("/")
        return Listed(process, instance, len(self._waiting.get(key, ())), None if known is None else known.next)


@dataclass(frozen=True)
class InstanceState:
    """The record of an instance. timers: the next one first. stopped: whether it has stopped at an event."""

    state: Any
    shape: str
    stopped: bool
    timers: Sequence[Timer]


def read_record(value: bytes) -> InstanceState | None:
    """The record of an instance; None if it cannot be read. Large integers of the state stay as they are."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    scheduled = scheduled_of(value)
    timers = sorted(Timer(timer.due_ms, name) for name, timer in scheduled.timers.items())
    return InstanceState(document.get("state"), scheduled.shape, scheduled.stopped is not None, timers)


class OneInstance:
    """Finds one instance, and what waits for it, in the records of its partition."""

    def __init__(self, record_key: str) -> None:
        self.value: bytes | None = None
        self.waiting: dict[int, Envelope | None] = {}
        """By offset in `process-inbox`; None: it is a row, or there are too many to keep it."""
        self._key, self._parked = record_key, f"{PARKED_PREFIX}{record_key}/"

    def add(self, records: Iterable[Record]) -> None:
        """Take records of the partition, in their order; raises TooMany."""
        for record in records:
            if record.key == self._key:
                self.value = record.value
            elif record.key.startswith(self._parked) and parked_place(record.key)[0] == self._key:
                self._park(parked_place(record.key)[1], record.value)
        if len(self.waiting) > MAX_KNOWN:
            raise TooMany

    def end_partition(self) -> None:
        """All records were added: nothing is left to do."""

    def _park(self, inbox_offset: int, value: bytes | None) -> None:
        if value is None:
            self.waiting.pop(inbox_offset, None)
            return
        try:
            self.waiting[inbox_offset] = decode(value) if len(self.waiting) < MAX_SHOWN else None
        except NotAnEnvelope:
            self.waiting[inbox_offset] = None
