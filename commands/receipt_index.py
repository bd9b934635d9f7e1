"""Where the receipt of each command lies: a bounded index, as small as Python's own dictionaries allow."""

from __future__ import annotations

_OFFSET_BITS = 48


class ReceiptIndex:
    """Command id → (partition, offset), for at most `limit` commands and at least the latest half as many.

    Keys are 64-bit hashes, so an answer may belong to another command: look at the record itself. When the young
    half is full, it becomes the old half and the previous old half is forgotten.
    """

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def add(self, command_id: str, partition: int, offset: int) -> None:
        """Remember the place of a receipt, in the place of an earlier one."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[hash(command_id)] = partition << _OFFSET_BITS | offset

    def find(self, command_id: str) -> tuple[int, int] | None:
        """(partition, offset) of the receipt, or None."""
        digest = hash(command_id)
        place = self._young.get(digest)
        if place is None:
            place = self._old.get(digest)
        return None if place is None else (place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1)
