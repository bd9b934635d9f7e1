"""What the owner of a partition knows: the snapshots of its streams and the receipts of its commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


class StateStore(Protocol):
    """The state of one partition, as of a committed transaction. Values are those of the log's records.

    It is written after the commit only, so it may be behind the log, but never ahead of it. Every method may raise
    LocalStateError.
    """

    def snapshot(self, stream: str) -> bytes | None:
        """The latest snapshot of a stream."""

    def snapshots(self, aggregate: str) -> Iterator[tuple[str, bytes]]:
        """The streams of an aggregate with their snapshots; some may be left out that are applied meanwhile."""

    def receipt(self, command_id: str) -> bytes | None:
        """The first receipt of a command, as long as receipts are kept."""

    def position(self, name: str) -> int:
        """What `apply` was told last by this name, such as the offset in a topic to read on from; 0 if nothing."""

    def apply(
        self,
        snapshots: Mapping[str, bytes | None],
        receipts: Mapping[str, bytes | None],
        positions: Mapping[str, int],
        time_ms: int = 0,
    ) -> None:
        """Take over what a transaction wrote, all or nothing; None forgets.

        time_ms: the time now, since 1970. Receipts are kept for the time that the store is made for, counted from here
        on, also where they were given earlier; 0 where there are none.
        """

    def check(self) -> None:
        """Raise LocalStateError where the next `apply` could fail; call it before a transaction is begun."""

    def clear(self) -> None:
        """Forget everything."""

    def close(self) -> None:
        """Let go of what is open."""


class MemoryStore:
    """A StateStore in memory: it grows with the number of streams and receipts, which it keeps for good."""

    def __init__(self) -> None:
        self._snapshots: dict[str, bytes | None] = {}
        self._receipts: dict[str, bytes | None] = {}
        self._positions: dict[str, int] = {}

    def snapshot(self, stream: str) -> bytes | None:
        """See StateStore.snapshot."""
        return self._snapshots.get(stream)

    def snapshots(self, aggregate: str) -> Iterator[tuple[str, bytes]]:
        """See StateStore.snapshots."""
        found = [(name, value) for name, value in self._snapshots.items() if name.startswith(f"{aggregate}/")]
        return ((name, value) for name, value in found if value is not None)

    def receipt(self, command_id: str) -> bytes | None:
        """See StateStore.receipt."""
        return self._receipts.get(command_id)

    def position(self, name: str) -> int:
        """See StateStore.position."""
        return self._positions.get(name, 0)

    def apply(
        self,
        snapshots: Mapping[str, bytes | None],
        receipts: Mapping[str, bytes | None],
        positions: Mapping[str, int],
        time_ms: int = 0,
    ) -> None:
        """See StateStore.apply."""
        for known, new in ((self._snapshots, snapshots), (self._receipts, receipts)):
            known.update(new)
            for key in [key for key, value in new.items() if value is None]:
                del known[key]
        self._positions.update(positions)

    def check(self) -> None:
        """See StateStore.check."""

    def clear(self) -> None:
        """See StateStore.clear."""
        self.__init__()  # type: ignore[misc]

    def close(self) -> None:
        """See StateStore.close."""
