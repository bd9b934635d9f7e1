"""The ports of the log: what commands and queries need, independent of the adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import msgspec

from headwater.eventlog import topics
from headwater.eventlog.errors import LogUnavailable


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a topic, as stored.

    topic: short name, without the environment. key: text; bytes that are not UTF-8 are kept as surrogate escapes.
    value: None is a tombstone. timestamp_ms: since 1970.
    """

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp_ms: int


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record to be appended. timestamp_ms: since 1970; 0 is stored as 1, because Kafka's client takes 0 for now."""

    topic: str
    key: str
    value: bytes | None
    timestamp_ms: int


class Role(NamedTuple):
    """A kind of partition owner, with its own group and transactional ids.

    name: used in `<env>.<name>`.
    reads: the topic whose partitions its members share.
    owns: the topics to which nobody else appends; the first one is compacted, and keeps the next offset under
    NEXT_OFFSET.
    partitions: of `reads` and `owns`; None: as many as `commands` has.
    with_heartbeats: those of `owns` to which others append heartbeats, between the owner's records.
    """

    name: str
    reads: str
    owns: tuple[str, ...]
    partitions: int | None = None
    with_heartbeats: tuple[str, ...] = ()


HANDLER = Role("handler", topics.COMMANDS, (topics.SNAPSHOTS, topics.EVENTS, topics.RECEIPTS))
ROUTER = Role("router", topics.EVENTS, (topics.ROUTED,))
PROCESSES = Role("processes", topics.INBOX, (topics.PROCESSES,))

NEXT_OFFSET = "next-offset"
"""Key of the record with the next offset of what a role reads, as of its last committed transaction."""


Failed = Callable[[LogUnavailable], None]
"""Gets the error of records that may not be in the log."""


class Transaction(Protocol):
    """Records that the owner of a partition appends together or not at all.

    Readers see nothing before `commit` is called, everything shortly after it (at the latest when the partition has a
    new owner), and never anything of an aborted transaction. After an error only `abort` may follow, and then the owner
    must be closed: the outcome of the transaction is unknown.
    """

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """Append in order and return one offset per entry; raises Fenced or LogUnavailable.

        The records may not be stored yet when it returns; `commit` raises if they cannot be stored, or have other
        offsets. Entries go to the owner's partition; dead letters, and others of a topic with one partition, to that;
        commands to their stream's, and records for a process to its instance's.
        """

    def commit(self, next_offset: int | None = None) -> None:
        """Make all of it visible, together with the next offset of what the role reads (None: unchanged).

        Raises like `append`.
        """

    def abort(self) -> None:
        """Take all of it back. Never raises, because the log aborts what is neither committed nor aborted."""


@contextmanager
def abort_on_error(transaction: Transaction) -> Iterator[Transaction]:
    """Abort the transaction after any error, because an open transaction delays every reader."""
    try:
        yield transaction
    except BaseException:
        transaction.abort()
        raise


class PartitionWriter(Protocol):
    """The only owner of a partition in its role; a handler writes `events`, `snapshots` and `receipts`."""

    partition: int

    def begin(self) -> Transaction:
        """Start a transaction; raises Fenced if another owner has taken over."""

    def close(self) -> None:
        """Give up the partition."""


class Membership(Protocol):
    """A member of the group of a role, which divides the partitions among its members."""

    def poll(self, timeout_s: float) -> frozenset[int]:
        """Stay a member, and return the partitions that this member has now; call it at least once per minute.

        A partition may be taken from this member while `poll` runs: then `on_revoked` is called, and the group waits
        until it returns.
        """

    def show(self, positions: Mapping[int, int]) -> None:
        """Let ordinary tools see how far the partitions of this member are; nothing resumes from that.

        positions: by partition, the offset up to which it is worked through. It costs next to nothing, does not wait,
        and raises nothing.
        """

    def close(self) -> None:
        """Leave the group at once, so that others take over without waiting for a timeout."""


class Tail(Protocol):
    """Committed records of some partitions, as they arrive."""

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        """At most `limit` records, in order within a partition; empty if none came in time.

        Raises LogUnavailable, also if records after a position were deleted unread. A tail that starts at offset 0
        begins with the first record that is left.
        """

    def position(self, partition: int) -> int:
        """The offset up to which `poll` has returned everything of `partition`."""

    def close(self) -> None:
        """Stop reading."""


class EventLog(Protocol):
    """Append and read, by partition and offset. Readers see only committed records."""

    partitions: int
    """Of `commands`, and of all topics with as many; see Role.partitions for others."""

    def join(self, on_revoked: RevokedCallback, role: Role = HANDLER) -> Membership:
        """Join the group that shares the partitions of what `role` reads."""

    def own(self, partition: int, role: Role = HANDLER) -> PartitionWriter:
        """Become the owner of `partition`; all earlier owners in this role are fenced.

        When it returns, the transactions of earlier owners have ended. Raises LogUnavailable, and LeftOpen if the log
        has lost the end of one.
        """

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        """Append outside a transaction; the future has its offset once it is stored, or LogUnavailable."""

    def send(self, entries: Sequence[Entry], partition: int, failed: Failed) -> None:
        """Append several to one partition, in the order of the calls; only an error is reported, to `failed`, in any
        thread. After an error, each of them may be in the log or not.
        """

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        """Records from offset `start` up to `end` (exclusive; None: the end at the time of the call).

        Offsets have gaps (transaction markers, aborted and compacted records), so fewer records than offsets are
        normal.
        """

    def tail(self, topic: str, starts: Mapping[int, int], *, rereads: bool = True) -> Tail:
        """Follow the partitions of `topic` from the offsets `starts`, without a group.

        rereads: whether a partition that has lost what was read, or is of another topic now, is read again from its
        first record; if not, `poll` raises LogUnavailable.
        """

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last committed record, where the next one may appear."""

    def ends(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The `end` of each of these, given by topic and partition; one question for all of them."""

    def stored_ends(self, topic: str) -> Mapping[int, int]:
        """The offset after the last record of each partition, committed or not; empty if there is no such topic."""

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """An offset before which no record has this time or a later one; time_ms: since 1970, negative before."""

    def first(self, topic: str, partition: int) -> int:
        """The lowest offset that retention has left; records before it are gone."""

    def firsts(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The `first` of each of these, given by topic and partition; one question for all of them."""

    def next_offset(self, partition: int, role: Role = HANDLER) -> int:
        """The next offset of what `role` reads, as of its last committed transaction; 0 if none."""

    def last(self, topic: str, partition: int, key: str) -> bytes | None:
        """The value of the last record with this key; None if there is none. Fast if it is near the end."""

    def incarnation(self, topic: str) -> str:
        """An id of the topic, which differs if it was deleted and created again, and in every other log."""

    def close(self) -> None:
        """Close all connections."""


def partitions_of_role(log: EventLog, role: Role) -> range:
    """The numbers of the partitions that `role` reads."""
    return range(log.partitions if role.partitions is None else role.partitions)


def topic_ends(log: EventLog, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The `end` of each of these partitions of a topic, in one question."""
    ends = log.ends((topic, partition) for partition in partitions)
    return {partition: end for (_, partition), end in ends.items()}


def topic_firsts(log: EventLog, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The `first` of each of these partitions of a topic, in one question."""
    firsts = log.firsts((topic, partition) for partition in partitions)
    return {partition: first for (_, partition), first in firsts.items()}


def record_at(log: EventLog, topic: str, partition: int, offset: int, end: int | None = None) -> Record | None:
    """The record at this place; None if there is none. end: that of the partition, if the caller knows it."""
    # a reader that starts after the end would be sent to the beginning
    if offset >= (log.end(topic, partition) if end is None else end):
        return None
    # read to the end: an unfinished reader is closed, and the next one must connect again
    records = list(log.read(topic, partition, offset, offset + 1))
    return next((record for record in records if record.offset == offset), None)


class RevokedCallback(Protocol):
    """Called before partitions are given to another member: stop writing to them before it returns."""

    def __call__(self, partitions: frozenset[int]) -> None:
        """Stop writing to `partitions`."""
