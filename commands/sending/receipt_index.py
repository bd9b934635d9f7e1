"""The place of each receipt in the log, by its key; the latest of them in memory (`stored_receipts` keeps all)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headwater.eventlog.ports import Record

Place = tuple[int, int]
"""Partition and offset of a receipt."""

_OFFSET_BITS = 48


class ReceiptIndex(Protocol):
    """Record key → place. Only `find_each` may be called from threads other than the one that adds.

    keeps_all: whether it needs all receipts of the log, not only the latest. A place that it finds may belong to
    another command: check the record. Every method may raise LocalStateError.
    """

    keeps_all: bool

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Store the places of `records`, replacing earlier ones; and `positions`, by partition."""

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Like `add`, for records that may be older than stored ones, which they do not replace."""

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """The place of the receipt with each of these keys, or None."""

    def position(self, partition: int) -> int:
        """The offset before which it has everything, from the last `add`; 0 if none."""

    def clear(self) -> None:
        """Delete everything."""

    def close(self) -> None:
        """Release resources."""


class RecentReceipts:
    """A ReceiptIndex in memory, for at most `limit` commands and at least the latest half of them.

    Keys are 64-bit hashes, to keep Python's dictionaries small: about 115 bytes per command. When the young half is
    full, it becomes the old half and the previous old half is deleted.
    """

    keeps_all = False

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add; no position is stored."""
        for record in records:
            if len(self._young) >= self._half:
                self._old, self._young = self._young, {}
            self._young[hash(record.key)] = packed(record)

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add_older: it has no space for them."""

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """See ReceiptIndex.find_each."""
        places = [self._young.get(digest, self._old.get(digest)) for digest in map(hash, keys)]
        return [None if place is None else unpacked(place) for place in places]

    def position(self, partition: int) -> int:
        """See ReceiptIndex.position."""
        return 0

    def clear(self) -> None:
        """See ReceiptIndex.clear."""
        self._young, self._old = {}, {}

    def close(self) -> None:
        """See ReceiptIndex.close."""


def packed(record: Record) -> int:
    """The place of a receipt, as one number of 64 bits."""
    return record.partition << _OFFSET_BITS | record.offset


def unpacked(place: int) -> Place:
    """The place that `packed` made a number."""
    return place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1
