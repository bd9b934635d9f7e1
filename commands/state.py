"""What the owner of a partition knows: the snapshots of its streams and the receipts of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class StateStore(Protocol):
    """The state of one partition, as of its last committed transaction. Values are those of the log's records."""

    def snapshot(self, stream: str) -> bytes | None:
        """The latest snapshot of a stream."""

    def receipt(self, command_id: str) -> bytes | None:
        """The first receipt of a command."""

    def position(self, topic: str) -> int:
        """The offset in `snapshots` or `receipts` from which on the store knows nothing yet."""

    def apply(
        self, snapshots: Mapping[str, bytes | None], receipts: Mapping[str, bytes | None], positions: Mapping[str, int]
    ) -> None:
        """Take over what a transaction wrote, all or nothing; None forgets."""


class MemoryStore:
    """A StateStore in memory: it grows with the number of streams and of receipts kept."""

    def __init__(self) -> None:
        self._snapshots: dict[str, bytes | None] = {}
        self._receipts: dict[str, bytes | None] = {}
        self._positions: dict[str, int] = {}

    def snapshot(self, stream: str) -> bytes | None:
        """See StateStore.snapshot."""
        return self._snapshots.get(stream)

    def receipt(self, command_id: str) -> bytes | None:
        """See StateStore.receipt."""
        return self._receipts.get(command_id)

    def position(self, topic: str) -> int:
        """See StateStore.position."""
        return self._positions.get(topic, 0)

    def apply(
        self, snapshots: Mapping[str, bytes | None], receipts: Mapping[str, bytes | None], positions: Mapping[str, int]
    ) -> None:
        """See StateStore.apply."""
        for known, new in ((self._snapshots, snapshots), (self._receipts, receipts)):
            known.update(new)
            for key in [key for key, value in new.items() if value is None]:
                del known[key]
        self._positions.update(positions)
