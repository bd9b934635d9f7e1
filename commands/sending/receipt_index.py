"""The place of each receipt in the log, by its key: in memory for the latest, on disk for all that are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rocksdict import Cache, WriteBufferManager

from commands.errors import LocalStateError
from commands.local_state.disk_state import DiskBudget, DiskStore
from commands.local_state.slots import Slot
from commands.local_state.state import StateStore
from eventlog import topics
from eventlog.ports import EventLog, Record
from eventlog.times import now_ms

Place = tuple[int, int]
"""Partition and offset of a receipt."""
Name = tuple[int, str]
"""Partition and record key of a receipt: commands of several streams may have the same id."""

_OFFSET_BITS = 48
_LAYOUT = "receipts-2"
BUDGET_BYTES = 16 * 1024 * 1024
"""For read blocks, and again for data that is not yet in files."""


class ReceiptIndex(Protocol):
    """Name → place. Only `find` and `find_each` may be called from threads other than the one that adds.

    keeps_all: whether it needs all receipts of the log, not only the latest. A place that it finds may belong to
    another command: check the record. Every method may raise LocalStateError.
    """

    keeps_all: bool

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Store the places of `records`, replacing earlier ones; and `positions`, by partition."""

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """Like `add`, for records that may be older than stored ones, which they do not replace."""

    def find(self, name: Name) -> Place | None:
        """The place of the receipt, or None."""

    def find_each(self, names: Sequence[Name]) -> Sequence[Place | None]:
        """Like `find`, for each of several; faster."""

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
            self._young[hash((record.partition, record.key))] = _place(record)

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add_older: it has no space for them."""

    def find(self, name: Name) -> Place | None:
        """See ReceiptIndex.find."""
        digest = hash(name)
        place = self._young.get(digest)
        if place is None:
            place = self._old.get(digest)
        return None if place is None else _parts(place)

    def find_each(self, names: Sequence[Name]) -> Sequence[Place | None]:
        """See ReceiptIndex.find_each."""
        return [self.find(name) for name in names]

    def position(self, partition: int) -> int:
        """See ReceiptIndex.position."""
        return 0

    def clear(self) -> None:
        """See ReceiptIndex.clear."""
        self._young, self._old = {}, {}

    def close(self) -> None:
        """See ReceiptIndex.close."""


class StoredReceipts:
    """A ReceiptIndex in a store on disk, which a process finds again after a restart."""

    keeps_all = True

    def __init__(self, store: StateStore, release: Callable[[], None] = lambda: None) -> None:
        """store: `close` closes it, and then calls `release`."""
        self._store, self._release = store, release

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add."""
        self._store.check()
        places = {_stored_as(_name(record)): _place(record).to_bytes(8, "big") for record in records}
        named = {_position_of(partition): offset for partition, offset in positions.items()}
        self._store.apply({}, places, named, now_ms())

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add_older."""
        unknown = []
        for record, known in zip(records, self.find_each([_name(record) for record in records]), strict=True):
            # a receipt that was sent again is stored again, and compaction removes the older record
            if known is None or known[1] < record.offset:
                unknown.append(record)
        self.add(unknown, positions)

    def find(self, name: Name) -> Place | None:
        """See ReceiptIndex.find."""
        return self.find_each([name])[0]

    def find_each(self, names: Sequence[Name]) -> Sequence[Place | None]:
        """See ReceiptIndex.find_each."""
        found = self._store.receipts([_stored_as(name) for name in names])
        return [None if place is None else _parts(int.from_bytes(place, "big")) for place in found]

    def position(self, partition: int) -> int:
        """See ReceiptIndex.position."""
        return self._store.position(_position_of(partition))

    def clear(self) -> None:
        """See ReceiptIndex.clear."""
        self._store.clear()

    def close(self) -> None:
        """See ReceiptIndex.close."""
        try:
            self._store.close()
        finally:
            self._release()


def open_stored(log: EventLog, folder: Path, receipts_days: int) -> StoredReceipts:
    """The index in a numbered folder of `folder` that no other living process holds.

    receipts_days: how long a receipt is found at least. Raises LocalStateError, and LogUnavailable because it asks
    Kafka for the topic's id.
    """
    origin = f"{_LAYOUT}/{log.incarnation(topics.RECEIPTS)}"
    budget = DiskBudget(Cache(BUDGET_BYTES), WriteBufferManager(BUDGET_BYTES, False))
    slot = Slot(folder.absolute())
    try:
        store = DiskStore(slot.folder / "receipts", origin, budget, receipts_days)
    except LocalStateError:
        slot.release()
        raise
    return StoredReceipts(store, slot.release)


def _name(record: Record) -> Name:
    return record.partition, record.key


def _stored_as(name: Name) -> str:
    return f"{name[0]}/{name[1]}"


def _place(record: Record) -> int:
    return record.partition << _OFFSET_BITS | record.offset


def _parts(place: int) -> Place:
    return place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1


def _position_of(partition: int) -> str:
    return f"{topics.RECEIPTS}/{partition}"
