"""Threads for reads that block, so that the event loop answers other requests meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


class Threads:
    """Threads with this name; they are started when they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, read: Callable[[*Arguments], Answer], *args: *Arguments) -> Answer:
        """The result of `read`, called in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _called, read, *args)

    async def run_while_wanted(
        self, read: Callable[[threading.Event, *Arguments], Answer], *args: *Arguments
    ) -> Answer:
        """The result of `read`, whose first argument is set once nobody waits for it any more."""
        unwanted = threading.Event()
        try:
            return await self.run(read, unwanted, *args)
        except asyncio.CancelledError:
            unwanted.set()
            raise

    def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _called(read: Callable[[*Arguments], Answer], *args: *Arguments) -> Answer:
    try:
        return read(*args)
    except StopIteration as error:  # of a user's code; a future cannot have it, and would never be done
        raise RuntimeError(f"{error!r} was raised") from error
