"""Taking turns in an event loop: long work continues with one part per turn of the loop."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets one waiter continue per turn of the event loop, in the order in which they came.

    So, however many waiters there are, all other work of the loop waits for at most one part of theirs.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def next(self) -> None:
        """Return in a later turn of the running loop, alone among the waiters."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # of an earlier loop, whose waiters are gone
            self._loop, self._waiting, self._scheduled = loop, deque(), False
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._wake_one, loop)
        await mine

    def _wake_one(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled meanwhile
                first.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._wake_one, loop)
