"""Who shares turns goes on one at a time, and everything else goes on between."""

from __future__ import annotations

import asyncio

from headwater.api.limits import Turns


def test_one_goes_on_per_turn_of_the_loop_in_the_order_of_coming() -> None:
    async def scenario() -> None:
        turns, order, turn = Turns(), list[tuple[int, str]](), 0

        async def work(name: str) -> None:
            for _ in range(3):
                await turns.next()
                order.append((turn, name))

        workers = [asyncio.create_task(work(name)) for name in "abc"]
        while not all(worker.done() for worker in workers):
            turn += 1
            await asyncio.sleep(0)
        assert [name for _, name in order] == list("abcabcabc")
        assert len({at for at, _ in order}) == len(order)

    asyncio.run(scenario())


def test_one_that_is_cancelled_holds_nobody_up() -> None:
    async def scenario() -> None:
        turns = Turns()
        waiting = [asyncio.create_task(turns.next()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 60)

    asyncio.run(scenario())


def test_a_loop_that_ended_leaves_nothing_behind() -> None:
    turns = Turns()
    stuck = asyncio.new_event_loop()
    task = stuck.create_task(turns.next())
    stuck.call_soon(stuck.stop)
    stuck.run_forever()  # it ended before the turn came
    asyncio.run(asyncio.wait_for(turns.next(), 60))
    task.cancel()
    stuck.run_until_complete(asyncio.gather(task, return_exceptions=True))
    stuck.close()
