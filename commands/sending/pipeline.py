"""Runs a bounded number of tasks at once, with the results in order of completion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_END: Final = object()


async def run_each(
    items: AsyncIterator[Item],
    work: Callable[[Item], Awaitable[Result]],
    deliver: Callable[[Sequence[Result]], Awaitable[None]],
    limit: int,
) -> None:
    """Await `work` of every item and pass the results to `deliver` as they come.

    Work starts in the order of the items. At most `limit` items are started and not delivered, so a slow `deliver`
    slows the reading of `items`. An error of any of the three, or a cancellation, ends the rest and is raised.
    """
    finished: asyncio.Queue[Result | object] = asyncio.Queue()
    free = asyncio.Semaphore(limit)

    async def finish(item: Item) -> None:
        finished.put_nowait(await work(item))

    async def start() -> None:
        async with asyncio.TaskGroup() as started:
            async for item in items:
                await free.acquire()
                started.create_task(finish(item))
        finished.put_nowait(_END)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(start())
            ended = False
            while not ended:
                results = [await finished.get()]
                while not finished.empty():
                    results.append(finished.get_nowait())
                if ended := results[-1] is _END:
                    results.pop()
                if results:
                    await deliver(results)  # type: ignore[arg-type]  # without the mark of the end
                for _ in results:
                    free.release()
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from errors
