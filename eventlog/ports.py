"""The ports of the log: what commands and queries need of it, whichever adapter serves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from eventlog import topics


class Record(NamedTuple):
    """One record of a topic, as stored.

    topic: short name, without the environment. key: text; bytes that are no UTF-8 are kept as surrogate escapes.
    value: None is a tombstone. timestamp_ms: since 1970.
    """

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp_ms: int


class Entry(NamedTuple):
    """A record still to be appended."""

    topic: str
    key: str
    value: bytes | None
    timestamp_ms: int


class Role(NamedTuple):
    """A kind of partition owner, each with a group and transactional ids of its own.

    name: what they are called by, `<env>.<name>`. reads: the topic whose partitions its members share. owns: the topics
    that nobody else appends to; the first of them is compacted, and keeps the offset to go on from under NEXT_OFFSET.
    """

    name: str
    reads: str
    owns: tuple[str, ...]


HANDLER = Role("handler", topics.COMMANDS, (topics.SNAPSHOTS, topics.EVENTS, topics.RECEIPTS))
ROUTER = Role("router", topics.EVENTS, (topics.ROUTED,))
PROCESSES = Role("processes", topics.INBOX, (topics.PROCESSES,))

NEXT_OFFSET = "next-offset"
"""Key of the record with the offset in what a role reads that its last committed transaction goes on from."""


class Transaction(Protocol):
    """Records appended together or not at all, by the owner of one partition.

    Readers see none of it before `commit` is called, all of it shortly after (at the latest when the partition has a
    new owner), and nothing ever of one that was aborted. After an error only
    `abort` may follow, and then the owner must be closed: what became of the transaction is not known.
    """

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """Append in order and return the offsets, one an entry; raises Fenced or LogUnavailable.

        They may not be stored yet when it returns; `commit` raises where they cannot be, or are elsewhere.
        Entries go to the owner's partition; dead letters to the one partition of theirs, commands to their stream's,
        and what is for a process to its instance's.
        """

    def commit(self, next_offset: int | None = None) -> None:
        """Make all of it visible, together with the offset to go on from in what the role reads (None: unchanged).

        Raises as `append`.
        """

    def abort(self) -> None:
        """Take all of it back; never raises: what is neither committed nor aborted is aborted by the log."""


@contextmanager
def abort_on_error(transaction: Transaction) -> Iterator[Transaction]:
    """Take the transaction back whatever is raised: one that is left open holds back every reader."""
    try:
        yield transaction
    except BaseException:
        transaction.abort()
        raise


class PartitionWriter(Protocol):
    """The one owner, in its role, of a partition: for a handler of `events`, `snapshots` and `receipts`."""

    partition: int

    def begin(self) -> Transaction:
        """Start a transaction; raises Fenced where another owner has taken over."""

    def close(self) -> None:
        """Give the partition up."""


class Membership(Protocol):
    """A place in the group of a role, which divides the partitions among its members."""

    def poll(self, timeout_s: float) -> frozenset[int]:
        """Keep the place, and return the partitions that are this member's now; call it at least every minute.

        A partition may be taken from this member while `poll` runs: `on_revoked` is called then, and the group waits
        until it returns.
        """

    def close(self) -> None:
        """Leave the group at once, so that others take over without waiting for a timeout."""


class Tail(Protocol):
    """Committed records of some partitions, as they come."""

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        """At most `limit` records, in order within a partition; empty when none came in time."""

    def position(self, partition: int) -> int:
        """The offset up to which everything of `partition` has been returned by `poll`."""

    def close(self) -> None:
        """Stop reading."""


class EventLog(Protocol):
    """Append and read, by partition and offset. Readers see committed records only."""

    partitions: int

    def join(self, on_revoked: RevokedCallback, role: Role = HANDLER) -> Membership:
        """Ask for a share of the partitions of what `role` reads."""

    def own(self, partition: int, role: Role = HANDLER) -> PartitionWriter:
        """Become the owner of `partition`: every earlier one in the same role is fenced off from here on.

        What earlier owners had begun has ended when it returns, one way or the other. Raises LogUnavailable, and
        LeftOpen where the log has lost such an end.
        """

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        """Append outside a transaction (a command); the future has its offset once it is stored, or LogUnavailable."""

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        """Records from offset `start` up to `end` (exclusive; None: the end at the time of the call).

        Offsets have gaps (transaction markers, aborted and compacted records): fewer records than offsets are normal.
        """

    def tail(self, topic: str, starts: Mapping[int, int]) -> Tail:
        """Follow the partitions of `topic` from the offsets `starts`, without a group."""

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last committed record: where the next may appear."""

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """An offset before which no record has this time or a later one."""

    def first(self, topic: str, partition: int) -> int:
        """The lowest offset that retention has left: what is asked for below it is gone."""

    def next_offset(self, partition: int, role: Role = HANDLER) -> int:
        """The offset in what `role` reads that its last committed transaction goes on from; 0 if none."""

    def last(self, topic: str, partition: int, key: str) -> bytes | None:
        """The value of the last record with this key; None if there is none. Quick if it is near the end."""

    def incarnation(self, topic: str) -> str:
        """Which topic this is: another text after it was deleted and made again, and in every other log."""

    def close(self) -> None:
        """Let go of every connection."""


class RevokedCallback(Protocol):
    """Called before partitions are given to another member: stop writing to them before returning."""

    def __call__(self, partitions: frozenset[int]) -> None:
        """Stop writing to `partitions`."""
