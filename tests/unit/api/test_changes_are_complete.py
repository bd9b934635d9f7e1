"""A page that reads the rows when it is told to, and applies all changes, has the rows of the store in the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.api.changes import feed, patch_tail, recent
from headwater.api.limits import Limits
from headwater.api.reading import Live
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryTail
from headwater.eventlog.ports import Record
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StoreUnavailable
from tests.unit.api.fake_service import MemoryReader
from tests.unit.api.followers import Follower, World, changed, play, until

TAG = "top_sellers@2.g1"
TOO_FAR = ("reset", {"reason": "too_far_behind"})


def row(key: str, price: int) -> dict[str, Any]:
    return {"listing_id": key, "price": price}


def names(follower: Follower) -> list[str]:
    return [name for name, _ in follower.events]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.01)
    monkeypatch.setattr(feed, "LOOK_BACK_S", 0.01, raising=False)


def test_what_the_store_had_not_applied_at_the_beginning() -> None:
    async def scenario(world: World) -> None:
        rows = world.store.rows["listings"]
        world.change("L1", price=1)
        for key in ("L1", "L2"):
            world.change(key, applied=False)
        async with world.following() as follower:
            await follower.until(1)
            assert follower.rows == {"L1": row("L1", 1)}
            async with world.following() as another:
                await another.until(1)
                await world.polled()
                assert names(follower) == names(another) == ["open"]
                rows |= {"L1": row("L1", 2), "L2": row("L2", 2)}
                world.apply()
                for counted in (follower, another):
                    await counted.until(3)
                    assert counted.rows == rows
        last = follower.parsed()[0][2]
        async with world.following(last=last) as follower:
            assert sorted(changed(await follower.until(3))) == [("L1", 2), ("L2", 2)], "its id was before them"

    play(scenario)


def test_patches_that_were_deleted_while_kafka_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    away = threading.Event()
    poll = MemoryTail.poll

    def polled(tail: MemoryTail, limit: int, timeout_s: float) -> list[Record]:
        if away.is_set():
            raise LogUnavailable("following", "no broker")
        return poll(tail, limit, timeout_s)

    monkeypatch.setattr(patch_tail, "RETRY_S", 0.001)
    monkeypatch.setattr(MemoryTail, "poll", polled)

    async def scenario(world: World) -> None:
        world.change("L1", price=1)
        async with world.following() as follower:
            await follower.until(1)
            away.set()
            world.change("L1", price=2)
            for partition in range(4):
                world.log.delete(PATCHES, partition, world.log.end(PATCHES, partition))
            away.clear()
            assert (await follower.until(2))[1] == TOO_FAR
            world.change("L2", price=3)
            await follower.until(3)
            assert follower.rows == {"L1": row("L1", 2), "L2": row("L2", 3)}

    play(scenario)


def test_a_store_that_was_too_far_behind_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_CATCH_UP", 3)

    async def scenario(world: World) -> None:
        rows = world.store.rows["listings"]
        for number in range(9):
            world.change(f"L{number}", applied=False)
        async with world.following() as follower:
            ((_, opened),) = await follower.until(1)
            await until(lambda: world.store.polled >= 4 and follower.text.count("heartbeat") >= 4)
            assert names(follower) == ["open"]
            ids = {line for line in follower.text.splitlines() if line.startswith("id: ")}
            assert ids == {f"id: {opened['position']}"} == {"id: 1;0:0,1:0,2:0,3:0"}
            rows |= {f"L{number}": row(f"L{number}", 1) for number in range(9)}
            world.apply()
            assert (await follower.until(2))[1] == TOO_FAR
            assert follower.rows == rows
            world.change("L1", price=2)
            await follower.until(3)
            assert follower.rows == rows

    play(scenario, Limits(heartbeat_s=0.01))


def test_a_new_generation_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        rows = world.store.rows["listings"]
        world.change("L1", price=1)
        async with world.following() as follower:
            await follower.until(1)
            before = world.store.reached
            world.change("L1", price=2)
            await follower.until(2)
            world.service.generations.number, world.store.reached = 2, before
            rows["L1"] = row("L1", 1)
            assert (await follower.until(3))[2] == ("reset", {"reason": "generation_changed"})
            assert follower.rows == {"L1": row("L1", 1)}
            await world.polled()
            rows["L1"] = row("L1", 2)
            world.apply()
            await until(lambda: follower.rows == rows)
            last = next(place for _, _, place in follower.parsed() if place.startswith("2;"))
        async with world.following(last=last) as follower:
            assert changed(await follower.until(2)) == [("L1", 2)], "the new generation had not applied it"

    play(scenario)


def test_touches_that_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_WAITING", 10)

    async def scenario(world: World) -> None:
        rows = world.store.rows["listings"]
        async with world.following() as follower:
            await follower.until(1)
            world.change("L0", applied=False)
            await world.polled()
            first = {partition: world.log.end(PATCHES, partition) for partition in range(4)}
            for number in range(50):
                world.change(f"L{number}", applied=False)
            await world.read()
            world.store.reached = first
            await until(lambda: TOO_FAR in follower.events)
            rows |= {f"L{number}": row(f"L{number}", 1) for number in range(50)}
            world.apply()
            await until(lambda: follower.rows == rows)

    play(scenario)


def sold(world: World, number: int, **cents: int) -> None:
    """A batch that is in Valkey, and in PostgreSQL later."""
    world.batch(number, cents, TAG)


def in_postgres(world: World) -> MemoryReader:
    """PostgreSQL has all batches so far."""
    reader = world.service.readers["postgres"]
    reader.reached = world.store.reached
    return reader


def sold_after_reset(follower: Follower) -> set[str]:
    """Rows that changed, once or several times: a change that may have been missed is sent again."""
    return {data["key"] for name, data in follower.events[follower.events.index(TOO_FAR) :] if name == "change"}


def test_whoever_begins_gets_what_one_of_the_stores_has_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        sold(world, 1, tea=1)
        in_postgres(world)
        async with world.following() as first:
            await first.until(1)
            sold(world, 2, tea=2, milk=2)
            await first.until(3)
            monkeypatch.delattr(recent.RecentTouches, "_read")  # the feed knows, and does not read for each of them
            async with world.following() as second, world.following(last="nonsense") as third:
                assert [name for name, _ in await second.until(3)] == ["open", "change", "change"]
                assert [name for name, _ in await third.until(4)] == ["open", "reset", "change", "change"]
                last = second.parsed()[0][2]
            async with world.following("key=milk") as fourth:
                assert [data["key"] for name, data in await fourth.until(2) if name == "change"] == ["milk"]
            async with world.following(last=last) as fifth:
                await fifth.until(3)
            in_postgres(world)
            async with world.following() as sixth:
                sold(world, 3, soap=3)
                assert [data["key"] for name, data in await sixth.until(2) if name == "change"] == ["soap"]
            assert names(first) == ["open", "change", "change", "change"], "no other follower costs it anything"

    play(scenario, view="top_sellers")


def test_whoever_begins_while_a_store_is_far_behind_gets_later_changes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        in_postgres(world)
        async with world.following() as first:
            await first.until(1)
            monkeypatch.setattr(recent, "MAX_ROWS", 1)
            sold(world, 1, tea=1, milk=1)
            await first.until(3)
            before = world.store.reached
            async with world.following() as second:
                await second.until(1)
                sold(world, 2, soap=2)
                await second.until(2)
                assert names(second) == ["open", "change"]
                assert second.last_id == second.parsed()[0][1]["position"] == "1;0:0,1:0,2:0,3:0"
                world.service.readers["postgres"].reached = before
                await until(lambda: TOO_FAR in second.events)
                assert sold_after_reset(second) == {"soap"}, "PostgreSQL had yet to apply it"
                sold(world, 3, soap=3)
                await until(lambda: second.rows == world.store.rows["top_sellers"])
                assert second.last_id != "1;0:0,1:0,2:0,3:0"
            assert TOO_FAR not in first.events

    play(scenario, view="top_sellers")


@pytest.mark.parametrize("joins", [False, True], ids=["first", "later"])
def test_a_store_that_is_away_stops_nobody_and_makes_them_read_again_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    away = [True]

    async def scenario(world: World) -> None:
        reader = in_postgres(world)

        async def next_offsets(live: Live) -> Mapping[int, int]:
            if away[0]:
                raise StoreUnavailable("PostgreSQL", "refused")
            return reader.reached

        async def follow() -> None:
            reader.next_offsets = next_offsets  # type: ignore[method-assign]
            async with world.following() as follower:
                await follower.until(1)
                sold(world, 1, tea=1)
                await follower.until(2)
                assert names(follower) == ["open", "change"]
                assert follower.last_id == "1;0:0,1:0,2:0,3:0", "of what it lacks, nothing is known"
                away[0] = False
                await until(lambda: TOO_FAR in follower.events)
                await follower.until(4)
                assert sold_after_reset(follower) == {"tea"}, "PostgreSQL had yet to apply it"

        if joins:
            async with world.following() as first:
                await first.until(1)
                await follow()
                assert TOO_FAR not in first.events
        else:
            await follow()

    play(scenario, view="top_sellers")


def test_what_was_applied_can_be_found_when_a_follower_begins() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as first:
            await first.until(1)
            refreshed = world.store.refreshed
            assert refreshed
            async with world.following() as second:
                await second.until(1)
                assert world.store.refreshed > refreshed

    play(scenario, view="listing_search")
