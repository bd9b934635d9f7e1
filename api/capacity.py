"""A bounded number of things that are in progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Capacity:
    """Places that are taken, several at once, and given back; whoever comes first gets them first."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def portions(self, items: Sequence[Item]) -> AsyncIterator[Sequence[Item]]:
        """`items` in their order, as many at once as there are free places, which they take."""
        while items:
            taken = await self._take(len(items))
            yield items[:taken]
            items = items[taken:]

    def give_back(self, places: int) -> None:
        """Let others take these places."""
        self._free += places
        self._freed.set()

    async def _take(self, wanted: int) -> int:
        """Wait until a place is free, and take up to `wanted`; returns how many."""
        async with self._turn:
            while not self._free:
                self._freed.clear()
                await self._freed.wait()
            taken = min(wanted, self._free)
            self._free -= taken
            return taken
