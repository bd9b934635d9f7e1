"""Erasures of persons while a view with personal values is followed: no patch says that an opened value is gone."""

from __future__ import annotations

import asyncio
import time

from headwater.eventlog.erasing.person import FORGOTTEN_S
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.installed import installed


class Erasures:
    """Looks for erasures of anybody, for one feed. known: the number of the last one after which followers read anew;
    None before the first look."""

    def __init__(self) -> None:
        self.known: int | None = None
        self._found: int | None = None
        self._found_at = 0.0

    async def begin(self) -> None:
        """Remember those that were before followers read rows. If nobody can say it now, the first answer counts as an
        erasure."""
        self.known = await self._look()

    async def are_new(self) -> bool:
        """Whether followers must read anew: somebody was erased, and every process has forgotten the key."""
        if self._found is None:
            number = await self._look()
            if number is not None and number != self.known:  # lower, if the store of keys was restored
                self._found, self._found_at = number, time.monotonic()
            return False
        if time.monotonic() - self._found_at < FORGOTTEN_S:
            return False
        self.known, self._found = self._found, None
        return True

    @staticmethod
    async def _look() -> int | None:
        """The number of the last erasure; None if the store of keys does not answer: then nobody opens values."""
        try:
            return await asyncio.to_thread(lambda: installed().last_erasure())
        except KeysUnavailable:
            return None
