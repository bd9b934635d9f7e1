"""The log in memory: the reference for the port's semantics, and a fast log for tests. One process only."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum

from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import Fenced, LogUnavailable
from headwater.eventlog.limits import MAX_RECORD_BYTES, entry_size
from headwater.eventlog.ports import (
    HANDLER,
    NEXT_OFFSET,
    Entry,
    Failed,
    Record,
    RevokedCallback,
    Role,
    partitions_of_role,
)
from headwater.eventlog.times import FIRST_RECORD_MS, now_ms


class _State(Enum):
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


@dataclass
class _Outcome:
    """The state of the records of one transaction."""

    state: _State = _State.OPEN
    touched: set[tuple[str, int]] = field(default_factory=set)


class MemoryLog:
    """The EventLog port in memory. Like Kafka, it uses one offset for the end of each transaction, and refuses records
    of more than MAX_RECORD_BYTES.
    """

    def __init__(self, partitions: int = 4) -> None:
        self.partitions = partitions
        self._changed = threading.Condition()
        self._records: dict[tuple[str, int], list[tuple[Record, _Outcome] | None]] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._id = uuid.uuid4().hex
        self._open: dict[tuple[Role, int], MemoryTransaction] = {}
        self._epochs: dict[tuple[Role, int], int] = {}
        self._members: dict[Role, list[MemoryMembership]] = {}
        self.shown: dict[Role, dict[int, int]] = {}
        """By role and partition, what members have shown; see Membership.show."""

    def join(self, on_revoked: RevokedCallback, role: Role = HANDLER) -> MemoryMembership:
        """See EventLog.join; the first member has all partitions until it leaves."""
        with self._changed:
            members = self._members.setdefault(role, [])
            members.append(member := MemoryMembership(self, members, role))
        return member

    def own(self, partition: int, role: Role = HANDLER) -> MemoryWriter:
        with self._changed:
            if (role, partition) in self._open:
                self._open[role, partition]._end(_State.ABORTED)
            epoch = self._epochs[role, partition] = self._epochs.get((role, partition), 0) + 1
        return MemoryWriter(self, partition, role, epoch)

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        stored: Future[int] = Future()
        with self._changed:
            try:
                stored.set_result(self._append(entry, partition, _Outcome(_State.COMMITTED)))
            except LogUnavailable as error:
                stored.set_exception(error)
            self._changed.notify_all()
        return stored

    def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
        """See EventLog.send; only records that are too large fail."""
        for entry in entries:
            error = self.submit(entry, partition).exception()
            if isinstance(error, LogUnavailable):
                failed(error)

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        with self._changed:
            stop = min(self._end(topic, partition), self._end(topic, partition) if end is None else end)
            start = max(start, self._first.get((topic, partition), 0))
            records = self._records.get((topic, partition), [])[start:stop]
        for place in records:
            if place is not None and place[1].state is _State.COMMITTED:
                yield place[0]

    def tail(self, topic: str, starts: Mapping[int, int], *, rereads: bool = True) -> MemoryTail:
        return MemoryTail(self, topic, starts, rereads=rereads)

    def end(self, topic: str, partition: int) -> int:
        with self._changed:
            return self._end(topic, partition)

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: self.end(*place) for place in places}

    def stored_ends(self, topic: str) -> Mapping[int, int]:
        """See EventLog.stored_ends; a topic exists from its first record on."""
        with self._changed:
            ends = {place[1]: len(records) for place, records in self._records.items() if place[0] == topic}
        return dict.fromkeys(range(self.partitions), 0) | ends if ends else {}

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        later = (record.offset for record in self.read(topic, partition, 0) if record.timestamp_ms >= time_ms)
        return next(later, self.end(topic, partition))

    def first(self, topic: str, partition: int) -> int:
        return self._first.get((topic, partition), 0)

    def firsts(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {place: self.first(*place) for place in places}

    def delete(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below offset `before`, as Kafka's retention does."""
        self._first[topic, partition] = before

    def next_offset(self, partition: int, role: Role = HANDLER) -> int:
        return int(self.last(role.owns[0], partition, NEXT_OFFSET) or 0)

    def last(self, topic: str, partition: int, key: str) -> bytes | None:
        values = [record.value for record in self.read(topic, partition, 0) if record.key == key]
        return values[-1] if values else None

    def incarnation(self, topic: str) -> str:
        return f"{self._id}/{topic}"

    def close(self) -> None:
        """See EventLog.close; the records stay in memory."""

    def _append(self, entry: Entry, partition: int, outcome: _Outcome) -> int:
        if (size_bytes := entry_size(entry.key, entry.value)) > MAX_RECORD_BYTES:
            raise LogUnavailable(f'appending to "{entry.topic}"', f"a record has {size_bytes} bytes")
        records = self._records.setdefault((entry.topic, partition), [])
        record = Record(
            entry.topic, partition, len(records), entry.key, entry.value, entry.timestamp_ms or FIRST_RECORD_MS
        )
        records.append((record, outcome))
        return record.offset

    def _end(self, topic: str, partition: int) -> int:
        records = self._records.get((topic, partition), [])
        opened = (i for i, place in enumerate(records) if place is not None and place[1].state is _State.OPEN)
        return next(opened, len(records))


class MemoryWriter:
    """The owner of one partition, while its epoch is the latest."""

    def __init__(self, log: MemoryLog, partition: int, role: Role, epoch: int) -> None:
        self.partition = partition
        self._log, self._place, self._epoch = log, (role, partition), epoch

    def begin(self) -> MemoryTransaction:
        self._check()
        transaction = self._log._open[self._place] = MemoryTransaction(self._log, self)
        return transaction

    def close(self) -> None:
        """See PartitionWriter.close."""

    def _check(self) -> None:
        if self._log._epochs[self._place] != self._epoch:
            raise Fenced(self.partition)


class MemoryTransaction:
    """An open transaction of a MemoryWriter."""

    def __init__(self, log: MemoryLog, writer: MemoryWriter) -> None:
        self._log, self._writer, self._outcome = log, writer, _Outcome()

    def append(self, entries: Sequence[Entry]) -> list[int]:
        offsets = []
        with self._log._changed:
            self._writer._check()
            for entry in entries:
                partition = self._partition(entry)
                offsets.append(self._log._append(entry, partition, self._outcome))
                self._outcome.touched.add((entry.topic, partition))
        return offsets

    def commit(self, next_offset: int | None = None) -> None:
        if next_offset is not None:
            role, _ = self._writer._place
            self.append([Entry(role.owns[0], NEXT_OFFSET, b"%d" % next_offset, now_ms())])
        with self._log._changed:
            self._writer._check()
            self._end(_State.COMMITTED)

    def abort(self) -> None:
        with self._log._changed:
            if self._outcome.state is _State.OPEN:
                self._end(_State.ABORTED)

    def _partition(self, entry: Entry) -> int:
        if entry.topic in topics.BY_KEY:
            return partition_of(entry.key, self._log.partitions)
        return 0 if entry.topic in topics.SINGLE else self._writer.partition

    def _end(self, state: _State) -> None:
        self._outcome.state = state
        if self._log._open.get(self._writer._place) is self:
            del self._log._open[self._writer._place]
        for place in self._outcome.touched:
            self._log._records[place].append(None)
        self._log._changed.notify_all()


class MemoryTail:
    """Committed records of some partitions, as they arrive."""

    def __init__(self, log: MemoryLog, topic: str, starts: Mapping[int, int], *, rereads: bool = True) -> None:
        self._log, self._topic, self._positions, self._rereads = log, topic, dict(starts), rereads

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        with self._log._changed:
            self._log._changed.wait_for(self._behind, timeout_s)
        polled: list[Record] = []
        for partition, position in self._positions.items():
            start = position
            if 0 < start < (first := self._log.first(self._topic, partition)):
                deleted = f"offsets {start} to {first - 1} of partition {partition} were deleted"
                raise LogUnavailable(f'following "{self._topic}"', deleted)
            end = self._log.end(self._topic, partition)
            if start > end:
                if not self._rereads:
                    raise LogUnavailable(f'following "{self._topic}"', f"partition {partition} ends at offset {end}")
                start = first
            records = list(self._log.read(self._topic, partition, start, end))[: limit - len(polled)]
            polled += records
            cut = len(polled) == limit and records
            self._positions[partition] = records[-1].offset + 1 if cut else start if len(polled) == limit else end
        return polled

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def close(self) -> None:
        """See Tail.close."""

    def _behind(self) -> bool:
        return any(self._log._end(self._topic, partition) != start for partition, start in self._positions.items())


class MemoryMembership:
    """A member of one role."""

    def __init__(self, log: MemoryLog, members: list[MemoryMembership], role: Role) -> None:
        self._log, self._members, self._role = log, members, role

    def poll(self, timeout_s: float) -> frozenset[int]:
        with self._log._changed:
            self._log._changed.wait(timeout_s)
            return frozenset(partitions_of_role(self._log, self._role) if self._members[0] is self else ())

    def show(self, positions: Mapping[int, int]) -> None:
        with self._log._changed:
            self._log.shown.setdefault(self._role, {}).update(positions)
            self._log._changed.notify_all()

    def close(self) -> None:
        with self._log._changed:
            self._members.remove(self)
