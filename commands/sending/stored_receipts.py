"""The place of each receipt that the log keeps, in a store on disk that a process finds again after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rocksdict import Cache, WriteBufferManager

from headwater.commands.errors import LocalStateError
from headwater.commands.local_state.disk_state import DiskBudget, DiskStore
from headwater.commands.local_state.folders import Slot
from headwater.commands.local_state.state import StateStore
from headwater.commands.sending.receipt_follower import Place, packed, unpacked
from headwater.eventlog import topics
from headwater.eventlog.ports import EventLog, Record
from headwater.eventlog.times import now_ms

_LAYOUT = "receipts"
BUDGET_BYTES = 16 * 1024 * 1024
"""For read blocks, and again for data that is not yet in files."""


class StoredReceipts:
    """A ReceiptIndex in a store on disk, which a process finds again after a restart."""

    keeps_all = True

    def __init__(self, store: StateStore, release: Callable[[], None] = lambda: None) -> None:
        """store: `close` closes it, and then calls `release`."""
        self._store, self._release = store, release

    def add(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add."""
        self._store.check()
        places = {record.key: packed(record).to_bytes(8, "big") for record in records}
        named = {_position_of(partition): offset for partition, offset in positions.items()}
        self._store.apply({}, places, named, now_ms())

    def add_older(self, records: Sequence[Record], positions: Mapping[int, int]) -> None:
        """See ReceiptIndex.add_older."""
        unknown = []
        for record, known in zip(records, self.find_each([record.key for record in records]), strict=True):
            # a receipt that was sent again is stored again, and compaction removes the older record
            if known is None or known[1] < record.offset:
                unknown.append(record)
        self.add(unknown, positions)

    def find_each(self, keys: Sequence[str]) -> Sequence[Place | None]:
        """See ReceiptIndex.find_each."""
        stored_receipts = self._store.receipts(keys)
        return [None if place is None else unpacked(int.from_bytes(place, "big")) for place in stored_receipts]

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


def _position_of(partition: int) -> str:
    return f"{topics.RECEIPTS}/{partition}"
