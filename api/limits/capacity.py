"""A bounded number of things, with a bounded number of bytes, that are in progress."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Capacity:
    """Places and bytes that are taken, several at once, and given back; whoever comes first gets them first.

    An item with more bytes than there are in all takes them all.
    """

    def __init__(self, places: int, size_bytes: int = sys.maxsize) -> None:
        self._places, self._free_bytes, self._all_bytes = places, size_bytes, size_bytes
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def portions(
        self, items: Sequence[Item], size_bytes: Callable[[Item], int] = lambda _: 0
    ) -> AsyncIterator[Sequence[Item]]:
        """`items` in their order, as many at once as there is room for, which they take.

        size_bytes: of an item.
        """
        while items:
            taken = await self._take([size_bytes(each) for each in items])
            yield items[:taken]
            items = items[taken:]

    def give_back(self, places: int, size_bytes: int = 0) -> None:
        """Let others take these places, and the bytes of one item."""
        self._places += places
        self._free_bytes += min(size_bytes, self._all_bytes)
        self._freed.set()

    async def _take(self, sizes: Sequence[int]) -> int:
        """Wait until there is room for the first of these, and take that of as many as fit; returns how many."""
        async with self._turn:
            while not (fitting := self._fitting(sizes)):
                self._freed.clear()
                await self._freed.wait()
            self._places -= len(fitting)
            self._free_bytes -= sum(fitting)
            return len(fitting)

    def _fitting(self, sizes: Sequence[int]) -> Sequence[int]:
        """The sizes of those of the first items that fit."""
        found, left = list[int](), self._free_bytes
        for size in (min(each, self._all_bytes) for each in sizes[: self._places]):
            if size > left:
                break
            found.append(size)
            left -= size
        return found
