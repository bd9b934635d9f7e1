"""A bounded number of places: whoever comes first gets them, and whoever leaves holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headwater.api.limits import Capacity
from tests.support.settled import settled


async def take(capacity: Capacity, items: Sequence[int], taken: list[Sequence[int]]) -> None:
    async for portion in capacity.portions(items):
        taken.append(portion)


def test_items_are_taken_in_their_order_as_places_become_free() -> None:
    async def scenario() -> None:
        capacity, taken = Capacity(3), list[Sequence[int]]()
        tasks = [asyncio.create_task(take(capacity, items, taken)) for items in ([1, 2, 3, 4, 5], [6], [])]
        await settled()
        assert (taken, [task.done() for task in tasks]) == ([[1, 2, 3]], [False, False, True])
        capacity.give_back(1)
        await settled()
        assert taken == [[1, 2, 3], [4]]
        capacity.give_back(3)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert taken in ([[1, 2, 3], [4], [5], [6]], [[1, 2, 3], [4], [6], [5]])

    asyncio.run(scenario())


def test_items_wait_until_there_are_bytes_for_them_and_the_largest_one_until_it_is_alone() -> None:
    async def scenario() -> None:
        capacity, taken = Capacity(10, 100), list[Sequence[int]]()

        async def take_bytes() -> None:
            async for portion in capacity.portions([40, 60, 1, 900, 5], lambda size: size):
                taken.append(portion)

        task = asyncio.create_task(take_bytes())
        for returned, expected in ((0, [[40, 60]]), (40, [[40, 60], [1]]), (60, [[40, 60], [1]])):
            if returned:
                capacity.give_back(1, returned)
            await settled()
            assert taken == expected
        capacity.give_back(1, 1)
        await settled()
        assert taken == [[40, 60], [1], [900]]
        capacity.give_back(1, 900)
        await asyncio.wait_for(task, 60)
        assert taken == [[40, 60], [1], [900], [5]]

    asyncio.run(scenario())


def test_one_that_is_cancelled_takes_nothing() -> None:
    async def scenario() -> None:
        capacity, taken = Capacity(1), list[Sequence[int]]()
        await take(capacity, [1], taken)
        gone, waiting = (asyncio.create_task(take(capacity, [number], taken)) for number in (2, 3))
        await asyncio.sleep(0)
        gone.cancel()
        capacity.give_back(1)
        await asyncio.wait_for(waiting, 60)
        assert taken == [[1], [3]]

    asyncio.run(scenario())
