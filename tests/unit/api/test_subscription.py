"""What one follower of changes takes, without a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.api.changes.patch_tail import Touch
from headwater.api.changes.subscription import Change, Delivery, Subscription


def change(key: str, number: int = 0) -> Change:
    return Change(key, b"%d" % number)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(main())


async def nothing(follower: Subscription) -> bool:
    """Whether there is nothing to take for now."""
    taking = asyncio.create_task(follower.take())
    for _ in range(5):
        await asyncio.sleep(0)
    waits = not taking.done()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    return waits


def test_the_latest_row_of_each_key_in_the_order_of_the_last_changes() -> None:
    async def scenario() -> None:
        follower = Subscription(None, "p0")
        follower.offer([change("a", 1), change("b", 1)])
        follower.offer([change("a", 2)])
        follower.move("p2")
        assert await follower.take() == Delivery([change("b", 1), change("a", 2)], "p2")
        assert await nothing(follower)

    play(scenario)


def test_a_client_may_go_on_only_from_before_what_it_lacks() -> None:
    async def scenario() -> None:
        follower = Subscription(None, "p0", lacks="too_far_behind")
        follower.offer([change("a", 1)])
        follower.move("p1")
        assert await follower.take() == Delivery([change("a", 1)], "p0")
        assert not follower.settled
        follower.offer([change("a", 2)])
        follower.reset("too_far_behind")
        follower.offer([change("b", 2)])
        follower.move("p3")
        assert await follower.take() == Delivery([change("b", 2)], "p3", reset="too_far_behind")
        assert follower.settled

    play(scenario)


def test_a_position_moves_without_a_change_and_wakes_nobody() -> None:
    async def scenario() -> None:
        follower = Subscription(frozenset({"b"}), "p0")
        follower.offer([change("a")])
        follower.move("p1")
        assert await nothing(follower)
        assert follower.position == "p1"

    play(scenario)


def test_a_client_may_go_on_from_a_position_once_it_has_everything_before_it() -> None:
    async def scenario() -> None:
        follower = Subscription(None, "p0")
        assert follower.settled
        follower.offer([change("a")])
        assert not follower.settled
        await follower.take()
        assert follower.settled
        follower.reset("generation_changed")
        assert not follower.settled
        assert not Subscription(None, "p0", wanted={"a": Touch(0, 1, None)}).settled

    play(scenario)


def test_after_the_end_nothing_is_taken_in() -> None:
    async def scenario() -> None:
        follower = Subscription(None, "p0")
        follower.offer([change("a")])
        follower.move("p1")
        follower.end("closing")
        follower.end("too_slow")
        follower.offer([change("b")])
        assert await follower.take() == Delivery([], "p0", ended="closing")

    play(scenario)
