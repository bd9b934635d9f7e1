"""The instances of one partition in its local store: their records, what waits for them, and their timers by due time.

Changes are kept in memory until `flush`, which writes them after their transaction was committed. Nothing else in
memory grows with the number of instances, timers or waiting records. These are in `processes`, in the order of
`process-inbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from msgspec import structs

from headwater.commands.local_state.state import StateStore
from headwater.commands.reacting.instance_index import (
    NOTED,
    TIMER,
    DueTimer,
    InstanceCounts,
    as_bytes,
    as_text,
    digest_of,
    read_timer,
    scheduled_of,
    timer_name,
    timer_value,
)
from headwater.eventlog import topics
from headwater.eventlog.ports import Entry, EventLog, Record

_INSTANCE, _SHAPE = "instance", "shape"
"""`instance/<record key>`: the value of its record. `shape/<process>`: of the state, when its instances were read."""
_WAITING, _COUNT, _READY = "waiting", "count", "ready"
"""`waiting/<digest of the record key>/<offset in process-inbox>`: the offset in `processes`. `count/<digest>`: how many
wait, and the record key. `ready/<digest>`: the record key of an instance that can handle what waits for it."""
_UNREADABLE, _LETTER = "unreadable", "letter"
"""`unreadable/<record key>`: where the instance has stopped. `letter/<record key>`: why, until it is a dead letter."""
MAX_PENDING: Final = 1_000
MAX_PENDING_BYTES: Final = 8 * 1024 * 1024

Declared = Callable[[str], bool]
"""Whether a process is declared, by its name."""


class WaitingPlace(NamedTuple):
    """The place of a waiting record in `process-inbox`, and its place in `processes`."""

    inbox_offset: int
    offset: int


class InstanceStore:
    """What the owner of a partition keeps of its process instances; each method may raise LocalStateError."""

    def __init__(self, store: StateStore, declared: Declared) -> None:
        self._store, self._declared = store, declared
        self._pending: dict[str, bytes | None] = {}
        self._pending_bytes = 0
        self._touched: set[str] = set()
        self._held: set[str] = set()
        self._first_due_ms = 0
        self._ready_after = ""
        self._looked_up: dict[str, bytes | None] = {}
        """Instances as they were last written, until the next flush."""
        self._looked_up_bytes = 0
        self._totals = dict.fromkeys((_COUNT, _READY, _UNREADABLE, _LETTER), 0)
        """How many of these there are: nearly always none, so that nothing needs to be looked up."""
        self.counts = InstanceCounts()
        """Of all instances, as they were last written; another thread may read them."""
        self.parked = 0
        """How many records wait for instances; likewise."""
        self._position = 0

    def open(self) -> None:
        """Count what is noted of few instances; call it before anything else."""
        for kind in self._totals:
            self._totals[kind] = sum(1 for _ in self._store.snapshots(kind))
        self.parked = sum(int(value.partition(b":")[0]) for _, value in self._store.snapshots(_COUNT))
        self._position = self._store.position(topics.PROCESSES)
        if not self.counts.restore(self._store.snapshot(NOTED), self._position):
            every = self._store.snapshots(_INSTANCE)
            self.counts.count((name.removeprefix(f"{_INSTANCE}/"), value) for name, value in every)

    @property
    def unreadable_instances(self) -> int:
        """How many instances this code cannot read or does not know."""
        return self._totals[_UNREADABLE]

    def position(self, topic: str) -> int:
        """The offset of a topic up to which it was read."""
        return self._store.position(topic)

    @property
    def is_full(self) -> bool:
        """Whether the changes should be written before others are made."""
        return len(self._touched) >= MAX_PENDING or self._pending_bytes >= MAX_PENDING_BYTES

    def instance(self, key: str) -> bytes | None:
        """The value of an instance's record."""
        name = f"{_INSTANCE}/{key}"
        return self._pending[name] if name in self._pending else self._written(key)

    def instances(self, process: str) -> Iterator[tuple[str, bytes]]:
        """The instances of a process, by record key, as they were last written."""
        for name, value in self._store.snapshots(f"{_INSTANCE}/{process}"):
            yield name.removeprefix(f"{_INSTANCE}/"), value

    def put(self, key: str, value: bytes | None) -> None:
        """Set the record of an instance; None: it has ended."""
        self._set(key, f"{_INSTANCE}/{key}", value)

    def shapes(self) -> Mapping[str, str]:
        """The shape of the state of each process, when its instances were read."""
        return {name.partition("/")[2]: value.decode() for name, value in self._store.snapshots(_SHAPE)}

    def put_shape(self, process: str, shape: str) -> None:
        """Note that all instances of a process were read with this shape of its state."""
        self._pending[f"{_SHAPE}/{process}"] = shape.encode()

    def count(self, key: str) -> int:
        """How many records wait for an instance."""
        counted = self._find(_COUNT, key)
        return int(counted.partition(b":")[0]) if counted else 0

    def waiting_keys(self) -> Iterator[str]:
        """The record keys of all instances for which records wait."""
        return (as_text(value.partition(b":")[2]) for _, value in self._store.snapshots(_COUNT))

    def waiting(self, key: str, limit: int) -> list[WaitingPlace]:
        """The first records that wait for an instance, as they were last written."""
        snapshots = islice(self._store.snapshots(f"{_WAITING}/{digest_of(key)}"), limit)
        return [WaitingPlace(int(name.rpartition("/")[2]), int(value)) for name, value in snapshots]

    def park(self, key: str, inbox_offset: int, offset: int) -> None:
        """Let a record wait, which is at `offset` of `processes`."""
        name = f"{_WAITING}/{digest_of(key)}/{inbox_offset:020d}"
        if self._get(name) is None:
            self._change_count(key, 1)
        self._set(key, name, b"%d" % offset)

    def release(self, key: str, inbox_offset: int) -> None:
        """Remove a record that has waited."""
        name = f"{_WAITING}/{digest_of(key)}/{inbox_offset:020d}"
        if self._get(name) is not None:
            self._change_count(key, -1)
            self._set(key, name, None)

    def hold(self, key: str) -> None:
        """Let the records of an instance wait until the next start, although it has not stopped."""
        self._held.add(key)
        self._touched.add(key)

    def touch(self, key: str) -> None:
        """Look again whether an instance can fire and handle what waits."""
        self._touched.add(key)

    def ready(self, limit: int) -> list[str]:
        """Record keys of instances that can handle what waits for them, others at each call."""
        if not self.has_ready:
            return []
        # what was removed in front of the last ones makes a look-up from the start slow
        ready_inputs = list(islice(self._store.snapshots(_READY, self._ready_after), limit))
        if not ready_inputs and self._ready_after:
            self._ready_after = ""
            ready_inputs = list(islice(self._store.snapshots(_READY), limit))
        self._ready_after = ready_inputs[-1][0].partition("/")[2] + "\x00" if ready_inputs else ""
        return [as_text(value) for _, value in ready_inputs]

    @property
    def has_ready(self) -> bool:
        """Whether `ready` finds any."""
        return self._totals[_READY] > 0

    def unreadable(self, key: str) -> str | None:
        """Where an instance has stopped that this code cannot read or does not know; None if it can read it."""
        reason = self._find(_UNREADABLE, key)
        return None if reason is None else reason.decode()

    def unreadables(self) -> Iterator[tuple[str, bytes]]:
        """The instances that this code could not read or did not know, as they were last written."""
        for name, _ in self._store.snapshots(_UNREADABLE):
            key = name.removeprefix(f"{_UNREADABLE}/")
            value = self._store.snapshot(f"{_INSTANCE}/{key}")
            if value is not None:
                yield key, value

    def mark_unreadable(self, key: str, value: bytes, reason: str | None) -> None:
        """Note that this code cannot read an instance. reason: of its dead letter; None: none is needed."""
        self._note(_UNREADABLE, key, (scheduled_of(value).stopped or "").encode())
        if reason is not None:
            self._note(_LETTER, key, reason.encode(errors="replace"))

    def mark_readable(self, key: str) -> None:
        """Note that this code can read an instance, or that it has ended."""
        self._note(_UNREADABLE, key, None)
        self._note(_LETTER, key, None)

    def letters(self, limit: int) -> list[tuple[str, str]]:
        """Unreadable instances without a dead letter: their record keys, and why they cannot be read."""
        if not self.has_letters:
            return []
        letters = islice(self._store.snapshots(_LETTER), limit)
        return [(name.partition("/")[2], value.decode()) for name, value in letters]

    @property
    def has_letters(self) -> bool:
        """Whether `letters` finds any."""
        return self._totals[_LETTER] > 0

    def report(self, key: str) -> None:
        """Note that an unreadable instance is a dead letter."""
        self._note(_LETTER, key, None)

    def due(self, until_ms: int, limit: int) -> list[DueTimer]:
        """The timers that are due until then, in their order, as they were last written."""
        due_timers = []
        for _, value in islice(self._store.snapshots(TIMER, f"{self._first_due_ms:020d}"), limit):
            timer = read_timer(value)
            if timer.due_ms > until_ms:
                break
            due_timers.append(timer)
        return due_timers

    def next_due_ms(self) -> int | None:
        """When the next timer is due; None if there is none."""
        first_timer = next(iter(self._store.snapshots(TIMER, f"{self._first_due_ms:020d}")), None)
        if first_timer is None:
            return None
        # what fired before leaves traces that make a look-up from the start slow
        due_ms = read_timer(first_timer[1]).due_ms
        self._first_due_ms = max(0, due_ms)
        return due_ms

    def flush(self, positions: Mapping[str, int], time_ms: int) -> None:
        """Write all changes at once, with the offsets up to which topics were read. time_ms: now, since 1970."""
        for key in self._touched:
            self._schedule(key)
        self._position = positions.get(topics.PROCESSES, self._position)
        self._pending[NOTED] = self.counts.noted(self._position)
        self._store.apply(self._pending, {}, positions, time_ms)
        self._pending, self._pending_bytes = {}, 0
        self._looked_up, self._looked_up_bytes = {}, 0
        self._touched.clear()
        self._held.clear()

    def purge(self, key: str) -> None:
        """Remove from the disk what an instance was before it was erased."""
        self._store.purge([f"{_INSTANCE}/{key}"])

    def check(self) -> None:
        """See StateStore.check."""
        self._store.check()

    def clear(self) -> None:
        """See StateStore.clear."""
        self._store.clear()
        self._totals = dict.fromkeys(self._totals, 0)
        self.counts, self.parked, self._position = InstanceCounts(), 0, 0

    def close(self) -> None:
        """See StateStore.close."""
        self._store.close()

    def _schedule(self, key: str) -> None:
        """Set the timers of an instance, if it can fire, and whether it can handle what waits."""
        written, value, count = self._written(key), self.instance(key), self.count(key)
        before, scheduled = scheduled_of(written), scheduled_of(value)
        for name, due in before.timers.items():
            self._pending[timer_name(key, name, due.due_ms)] = None
        if f"{_INSTANCE}/{key}" in self._pending:
            self.counts.change(key, before if written is not None else None, scheduled if value is not None else None)
        works = scheduled.stopped is None and self.unreadable(key) is None
        if works and not count:
            for name, due in scheduled.timers.items():
                self._pending[timer_name(key, name, due.due_ms)] = timer_value(key, name, due.due_ms)
                self._first_due_ms = min(self._first_due_ms, max(0, due.due_ms))
        is_ready = works and count > 0 and key not in self._held and self._declared(key.partition("/")[0])
        self._note(_READY, key, as_bytes(key) if is_ready else None)

    def _change_count(self, key: str, by: int) -> None:
        self.parked += by
        count = self.count(key) + by
        self._note(_COUNT, key, b"%d:" % count + as_bytes(key) if count else None)

    def _note(self, kind: str, key: str, value: bytes | None) -> None:
        """Set what is known of few instances, and count them."""
        before = self._find(kind, key)
        if value != before:
            self._totals[kind] += (value is not None) - (before is not None)
            self._pending[_name(kind, key)] = value
            if kind != _READY:
                self._touched.add(key)

    def _find(self, kind: str, key: str) -> bytes | None:
        """What is known of few instances; None of the others."""
        return self._get(_name(kind, key)) if self._totals[kind] else None

    def _written(self, key: str) -> bytes | None:
        """An instance as it was last written."""
        if key not in self._looked_up:
            if self._looked_up_bytes > MAX_PENDING_BYTES:
                self._looked_up, self._looked_up_bytes = {}, 0
            value = self._looked_up[key] = self._store.snapshot(f"{_INSTANCE}/{key}")
            self._looked_up_bytes += len(value or b"")
        return self._looked_up[key]

    def _set(self, key: str, name: str, value: bytes | None) -> None:
        self._pending[name] = value
        self._pending_bytes += len(value or b"")
        self._touched.add(key)

    def _get(self, name: str) -> bytes | None:
        return self._pending[name] if name in self._pending else self._store.snapshot(name)


def _name(kind: str, key: str) -> str:
    return f"{kind}/{digest_of(key)}" if kind in (_COUNT, _READY) else f"{kind}/{key}"


PARKED_PREFIX: Final = "parked:"
"""Start of the keys of these records; process names have no colon."""
MAX_SPAN_OFFSETS: Final = 10_000
"""Of the records of `processes` that are read to find waiting ones."""


def read_waiting(
    log: EventLog, partition: int, key: str, places: Sequence[WaitingPlace]
) -> list[tuple[int, Record | None]]:
    """The first of these records, with their offsets in `process-inbox`; a record that was erased is None."""
    if not places:
        return []
    end = places[0].offset + MAX_SPAN_OFFSETS
    chosen = list(takewhile(lambda place: place.offset < end, places))
    wanted = {place.offset: place.inbox_offset for place in chosen}
    read = log.read(topics.PROCESSES, partition, chosen[0].offset, chosen[-1].offset + 1)
    records = {
        record.offset: structs.replace(record, topic=topics.INBOX, key=key, offset=wanted[record.offset])
        for record in read
        if record.offset in wanted
    }
    return [(place.inbox_offset, records.get(place.offset)) for place in chosen]


def parked(record: Record) -> Entry:
    """The record of `processes` for a record of `process-inbox` that waits."""
    return Entry(topics.PROCESSES, f"{PARKED_PREFIX}{record.key}/{record.offset}", record.value, record.timestamp_ms)


def released(key: str, inbox_offset: int, now_ms: int) -> Entry:
    """The tombstone for a waiting record that was handled."""
    return Entry(topics.PROCESSES, f"{PARKED_PREFIX}{key}/{inbox_offset}", None, now_ms)


def parked_place(record_key: str) -> tuple[str, int]:
    """The record key of the instance for which a record of `processes` waits, and its offset in `process-inbox`."""
    key, _, inbox_offset = record_key.removeprefix(PARKED_PREFIX).rpartition("/")
    return key, int(inbox_offset)
