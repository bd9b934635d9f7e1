"""Followers of large rows: they share the texts, get them in portions, and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from headwater.api.changes import changed_rows, subscription
from headwater.api.changes.feed import ViewFeed
from headwater.api.changes.patch_tail import Touch
from headwater.api.changes.subscription import Change, Delivery, Subscription
from headwater.api.routes import changes
from headwater.api.routes.changes import PIECE_BYTES
from tests.unit.api.followers import Follower, World, changed, play, until

TEXT = "x" * 2_000
RESET = ("reset", {"reason": "too_far_behind"})


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A portion has a few rows of TEXT, and a follower may have some portions."""
    monkeypatch.setattr(changed_rows, "FIRST_ROWS", 3)
    monkeypatch.setattr(changed_rows, "PORTION_BYTES", 5 * len(TEXT))
    monkeypatch.setattr(subscription, "MAX_UNREAD_BYTES", 20 * len(TEXT))


def feed_of(world: World) -> ViewFeed:
    (feed,) = world.service.feeds._feeds.values()
    return feed


def change_many(world: World, count: int, start: int = 0) -> None:
    """Change rows that the store has not applied; `apply_many` applies them."""
    for number in range(start, start + count):
        world.change(f"L{number}", applied=False, price=number)


def apply_many(world: World, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        key = f"L{number}"
        world.store.rows["listings"][key] = {"listing_id": key, "price": number, "city": TEXT}
    world.apply()


def has_all(follower: Follower, count: int, or_reset: bool = False) -> bool:
    """Whether a follower got so many rows, or was asked to read all rows again."""
    return len(keys_of(follower)) == count or (or_reset and RESET in follower.events)


def keys_of(follower: Follower) -> set[str]:
    return {key for key, _ in changed(follower.events)}


@pytest.mark.usefixtures("few_bytes")
def test_many_large_rows_are_sent_in_portions_and_all_arrive() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as one, world.following() as other:
            await one.until(1)
            await other.until(1)
            change_many(world, 60)
            await world.read()
            apply_many(world, 60)
            await world.offered()
            for follower in (one, other):
                await until(partial(has_all, follower, 60))
                assert not [name for name, _ in follower.events if name in ("reset", "end")]
            assert max(len(keys) for _, keys in world.store.many) < 60
            before = one.last_id
            async with world.following(last=before) as third:
                await third.until(1)
                world.change("L1", price=7)
                await until(lambda: ("L1", 7) in changed(third.events))

    play(scenario)


@pytest.mark.usefixtures("few_bytes")
def test_the_position_does_not_move_before_all_portions_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that leaves between two portions and comes back gets all of them."""
    allowed = asyncio.Event()
    read = list[Sequence[str]]()

    async def scenario(world: World) -> None:
        reader = world.store
        original = reader.get_many

        async def slowly(live: object, keys: Sequence[str], columns: Sequence[str] = ()) -> object:
            read.append(keys)
            if len(read) == 2:
                await allowed.wait()
            return await original(live, keys, columns)  # type: ignore[arg-type]

        async with world.following() as other:
            await other.until(1)
            monkeypatch.setattr(reader, "get_many", slowly)
            async with world.following() as leaving:
                await leaving.until(1)
                change_many(world, 30)
                await world.read()
                apply_many(world, 30)
                await until(lambda: len(read) == 2 and len(keys_of(leaving)) > 0)
                place = leaving.last_id
            assert len(keys_of(leaving)) < 30
            async with world.following(last=place) as back, world.following() as new:
                await back.until(1)
                await new.until(1)
                allowed.set()
                await until(lambda: len(keys_of(other)) == 30)
                # who comes between two portions gets all rows, or is told to read them again
                for follower in (back, new):
                    await until(partial(has_all, follower, 30, or_reset=True))
                await world.offered()
                world.change("L1", price=99)
                await until(lambda: ("L1", 99) in changed(back.events) and ("L1", 99) in changed(new.events))
            assert not [name for name, _ in other.events if name in ("reset", "end")]

    play(scenario)


@pytest.mark.usefixtures("few_bytes")
def test_a_follower_with_too_many_unread_bytes_is_disconnected_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.api.changes.feed.ROOM_S", 1.0)

    async def scenario(world: World) -> None:
        async with world.following(slow=True) as slow, world.following() as other:
            await slow.until(1)
            await other.until(1)
            world.change("L0", price=0)
            await until(lambda: "change" in slow.text)  # it reads no more
            change_many(world, 60)
            await world.read()
            apply_many(world, 60)
            await until(lambda: len(keys_of(other)) == 60)
            slow.reads.set()
            await until(lambda: ("end", {"reason": "too_slow"}) in slow.events)
            assert not [name for name, _ in other.events if name in ("reset", "end")]

    play(scenario)


@pytest.mark.usefixtures("few_bytes")
def test_who_missed_more_bytes_than_may_be_kept_gets_them_in_portions() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as other:
            await other.until(1)
            world.change("L0", price=0)
            await until(lambda: len(keys_of(other)) == 1)
            place = other.last_id
            change_many(world, 60)
            await world.read()
            apply_many(world, 60)
            await until(lambda: len(keys_of(other)) == 60)
            async with world.following(last=place) as back:
                await until(lambda: len(keys_of(back)) == 60)
                assert not [name for name, _ in back.events if name in ("reset", "end")]
            assert len(keys_of(other)) == 60

    play(scenario)


def test_followers_that_come_back_share_the_texts_of_what_they_missed() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as other:
            await other.until(1)
            change_many(world, 50)
            await world.read()
            apply_many(world, 50)
            await until(lambda: len(keys_of(other)) == 50)
            feed, touches = feed_of(world), {f"L{number}": Touch(0, 0, None) for number in range(50)}
            first = [change async for portion in feed._rows.portions(touches) for change in portion]
            reads = len(world.store.many)
            again = [change async for portion in feed._rows.portions(touches) for change in portion]
            assert len(world.store.many) == reads
            assert all(one is another for one, another in zip(first, again, strict=True))
            touches["L7"] = Touch(0, 1, None)
            newer = [change async for portion in feed._rows.portions(touches) for change in portion]
            assert [one is another for one, another in zip(first, newer, strict=True)].count(False) == 1

    play(scenario)


def test_a_delivery_is_written_in_pieces() -> None:
    several = [Change(f"k{number}", b"event: change\ndata: " + b"x" * 1_000 + b"\n") for number in range(1_900)]
    pieces = list(changes._pieces(Delivery(several, "1;0:7", reset="too_far_behind", ended=None)))
    assert max(map(len, pieces)) < PIECE_BYTES + 2_000
    text = b"".join(pieces)
    assert text.startswith(b'event: reset\ndata: {"reason":"too_far_behind"}\n\nevent: change\n')
    assert text.count(b"id: ") == 1
    assert text.endswith(b"\n\nid: 1;0:7\n" + several[-1].event + b"\n")
    assert b"".join(changes._pieces(Delivery([], "1;0:7", reset="position_gone"))).startswith(
        b"id: 1;0:7\nevent: reset"
    )
    assert (
        b"".join(changes._pieces(Delivery([], "p", ended="closing"))) == b'event: end\ndata: {"reason":"closing"}\n\n'
    )


def test_one_change_is_taken_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MAX_UNREAD_BYTES", 10)

    async def main() -> None:
        follower = Subscription(None, "p0")
        follower.offer([Change("a", b"x" * 100)])
        assert [change.key for change in (await follower.take()).changes] == ["a"]
        follower.offer([Change("a", b"x" * 8)])
        follower.offer([Change("a", b"x" * 9)])  # in place of the one before
        assert (await follower.take()).ended is None
        follower.offer([Change("a", b"x" * 8)])
        follower.offer([Change("b", b"x" * 9)])
        assert (await follower.take()).ended == "too_slow"

    asyncio.run(main())
