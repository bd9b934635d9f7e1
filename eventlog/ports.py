"""The ports of the log: what commands and queries need of it, whichever adapter serves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic, as stored.

    topic: short name, without the environment. timestamp_ms: since 1970. value: None is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A record still to be appended to a partition that the writer owns."""

    topic: str
    key: str
    value: bytes | None
    timestamp_ms: int


class Transaction(Protocol):
    """Records appended together or not at all, by the owner of one partition.

    Readers see none of it before `commit` returns, and nothing ever of one that was aborted.
    """

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """Append in order and return the offsets, one an entry; raises Fenced or LogUnavailable."""

    def commit(self, next_command: int) -> None:
        """Make all of it visible, together with the command offset to go on from; raises as `append`."""

    def abort(self) -> None:
        """Take all of it back; a transaction that is neither committed nor aborted is aborted by the log."""


class PartitionWriter(Protocol):
    """The one owner of a partition of `events`, `snapshots` and `receipts`."""

    partition: int

    def begin(self) -> Transaction:
        """Start a transaction; raises Fenced where another owner has taken over."""

    def close(self) -> None:
        """Give the partition up."""


class EventLog(Protocol):
    """Append and read, by partition and offset. Readers see committed records only."""

    partitions: int

    def own(self, partition: int) -> PartitionWriter:
        """Become the owner of `partition`: every earlier owner is fenced off from here on."""

    def submit(self, entry: Entry, partition: int) -> None:
        """Append outside a transaction (a command); returns once it is stored. Raises LogUnavailable."""

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        """Records from offset `start` up to `end` (exclusive; None: the end at the time of the call)."""

    def end(self, topic: str, partition: int) -> int:
        """The offset after the last committed record: where the next may appear."""

    def next_command(self, partition: int) -> int:
        """The command offset that the last committed transaction of this partition went on from; 0 if none."""
