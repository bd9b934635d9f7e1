"""What the owner of a partition stores: the snapshots of its streams and the receipts of its commands.

The owner of process instances keeps them as snapshots, too, with their timers and what waits (see
`reacting/instance_store`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")


class StateStore(Protocol):
    """The state of one partition, as of a committed transaction. Values are those of the log's records.

    It is written only after the commit, so it may be behind the log, but never ahead of it. Every method may raise
    LocalStateError.
    """

    def snapshot(self, stream: str) -> bytes | None:
        """The latest snapshot of a stream."""

    def snapshots(self, aggregate: str, start: str = "") -> Iterator[tuple[str, bytes]]:
        """The streams of an aggregate with their snapshots, in the order of the bytes of their names.

        start: the first id, after `<aggregate>/`. Streams that are applied meanwhile may be missing.
        """

    def receipts(self, command_ids: Sequence[str]) -> Sequence[bytes | None]:
        """The first receipt of each of these commands, while receipts are kept."""

    def position(self, name: str) -> int:
        """The value of this name in the last `apply`, such as the offset of a topic to continue from; 0 if none."""

    def apply(
        self,
        snapshots: Mapping[str, bytes | None],
        receipts: Mapping[str, bytes | None],
        positions: Mapping[str, int],
        time_ms: int = 0,
    ) -> None:
        """Apply the writes of a transaction, all or nothing; None deletes.

        time_ms: the time now, since 1970. Receipts are kept for the time that the store is made for, counted from now,
        even if they were given earlier; 0 if there are none.
        """

    def purge(self, streams: Sequence[str] = ()) -> None:
        """Remove earlier snapshots of these streams from the disk, which may keep replaced values for a while.

        Without streams, those of all, which takes as long as writing the store again.
        """

    def check(self) -> None:
        """Raise LocalStateError if the next `apply` could fail; call it before a transaction begins."""

    def clear(self) -> None:
        """Delete everything."""

    def close(self) -> None:
        """Release resources."""


class MemoryStore:
    """A StateStore in memory: it grows with the number of streams and receipts, and never deletes receipts."""

    def __init__(self) -> None:
        self._snapshots: dict[str, bytes | None] = {}
        self._receipts: dict[str, bytes | None] = {}
        self._positions: dict[str, int] = {}

    def snapshot(self, stream: str) -> bytes | None:
        """See StateStore.snapshot."""
        return self._snapshots.get(stream)

    def snapshots(self, aggregate: str, start: str = "") -> Iterator[tuple[str, bytes]]:
        """See StateStore.snapshots."""
        first = _in_order(f"{aggregate}/{start}")
        names = [name for name in self._snapshots if name.startswith(f"{aggregate}/") and _in_order(name) >= first]
        listed = [(name, self._snapshots[name]) for name in sorted(names, key=_in_order)]
        return ((name, value) for name, value in listed if value is not None)

    def receipts(self, command_ids: Sequence[str]) -> Sequence[bytes | None]:
        """See StateStore.receipts."""
        return [self._receipts.get(command_id) for command_id in command_ids]

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

    def purge(self, streams: Sequence[str] = ()) -> None:
        """See StateStore.purge."""

    def check(self) -> None:
        """See StateStore.check."""

    def clear(self) -> None:
        """See StateStore.clear."""
        self.__init__()  # type: ignore[misc]

    def close(self) -> None:
        """See StateStore.close."""


def _in_order(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


class BoundedCache(Generic[Value]):
    """What was read from a store, by key, as much as fits in memory: `shrink` forgets what was not used for longest."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[str, tuple[Value, int]] = OrderedDict()
        self.size_bytes = 0
        """The sum of the sizes that were given."""

    def get(self, key: str) -> Value | None:
        """The value of a key, which counts as used; None if it is not cached."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: str, value: Value, size_bytes: int) -> None:
        """Cache the value of a key, instead of the one before."""
        self.forget(key)
        self._values[key] = value, size_bytes
        self.size_bytes += size_bytes

    def forget(self, key: str) -> None:
        """Remove a key; the store has what is committed."""
        if key in self._values:
            self.size_bytes -= self._values.pop(key)[1]

    def clear(self) -> None:
        """Remove all keys."""
        self._values.clear()
        self.size_bytes = 0

    def shrink(self) -> None:
        """Forget keys until the others are neither too many nor too large."""
        while len(self._values) > self._most or self.size_bytes > self._most_bytes:
            self.forget(next(iter(self._values)))
