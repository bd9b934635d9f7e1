"""Following changes as server-sent events, with the log and the store in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from headwater.api.changes import feed, recent, subscription
from headwater.api.limits import Limits
from headwater.api.reading import Live
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import Entry
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.eventlog.topics import PATCHES
from headwater.projections.errors import StoreUnavailable
from headwater.projections.loading.decoding import announcement
from headwater.projections.stores.store import Target
from headwater.projections.stream.view import StreamView
from tests.support.carts import cart_view
from tests.support.observed import gate_view
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService
from tests.unit.api.followers import Follower, World, changed, play, until


def test_each_change_is_told_with_the_row_after_it() -> None:
    async def scenario(world: World) -> None:
        world.change("before", price=1)
        async with world.following() as follower:
            ((name, opened),) = await follower.until(1)
            assert (name, opened["generation"]) == ("open", 1)
            assert follower.headers["content-type"].startswith("text/event-stream")
            world.change("L1", price=1)
            assert (await follower.until(2))[1] == (
                "change",
                {"key": "L1", "row": {"listing_id": "L1", "price": 1}, "position": "3:2"},
            )
            world.change("other view", tag="city_market@1")
            world.change("L1", price=2)
            world.change("ü/\n", price=3)
            assert set(changed(await follower.until(4))) >= {("ü/\n", 3)}
            del world.store.rows["listings"]["L1"]
            world.change("L1", applied=False)
            world.apply()
            assert changed(await follower.until(5))[-1] == ("L1", None)

    play(scenario)


def test_a_row_that_was_replaced_in_its_store_is_told_without_a_position() -> None:
    async def scenario(world: World) -> None:
        world.change("L1", price=1)
        async with world.following() as follower:
            await follower.until(1)
            world.store.rows["listings"]["L1"]["price"] = 2
            key = "listings@1/L1"
            world.log.submit(Entry(PATCHES, key, announcement("3"), 1), partition_of(key, 4))
            world.apply()
            row = {"listing_id": "L1", "price": 2}
            assert (await follower.until(2))[1] == ("change", {"key": "L1", "row": row, "position": None})

    play(scenario)


def test_a_change_is_told_once_the_store_has_it() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.change("L1", applied=False)
            world.store.rows["listings"]["L1"] = {"listing_id": "L1", "price": 1}
            await world.polled()
            assert len(follower.events) == 1
            world.store.rows["listings"]["L1"]["price"] = 2
            world.apply()
            assert changed(await follower.until(2)) == [("L1", 2)]

    play(scenario)


def test_only_the_keys_that_are_asked_for() -> None:
    async def scenario(world: World) -> None:
        async with world.following("key=L2&key=L3") as follower:
            await follower.until(1)
            for number in range(5):
                world.change(f"L{number}", price=number)
            assert sorted(changed(await follower.until(3))) == [("L2", 2), ("L3", 3)]

    play(scenario)


@pytest.mark.parametrize("by", ["header", "parameter"])
def test_who_comes_back_is_told_what_changed_meanwhile(by: str) -> None:
    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.change("L1", price=1)
            await follower.until(2)
            last = follower.last_id
        world.change("L1", price=2)
        world.change("L2", price=3)
        world.change("elsewhere", tag="city_market@1")
        query, header = ("", last) if by == "header" else (f"from={last}", None)
        async with world.following(query, header) as follower:
            events = await follower.until(3)
            assert sorted(changed(events)) == [("L1", 2), ("L2", 3)]
            world.change("L3", price=4)
            assert changed(await follower.until(4))[-1] == ("L3", 4)
        async with world.following("key=L2", last) as follower:
            assert changed(await follower.until(2)) == [("L2", 3)]

    play(scenario)


def test_who_missed_too_much_reads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for last in ("nonsense", "1;0:0,1:0,2:0,3:0;x", "1;0:0,1:0,2:0,3:0;", "1;0:0", "1;0:99,1:0,2:0,3:0"):
            async with world.following(last=last) as follower:
                assert (await follower.until(2))[1] == ("reset", {"reason": "position_gone"}), last
                world.change("L1", price=1)
                assert changed(await follower.until(3)) == [("L1", 1)]
        async with world.following(last="7;0:0,1:0,2:0,3:0") as follower:
            assert (await follower.until(2))[1] == ("reset", {"reason": "generation_changed"})
        monkeypatch.setattr(recent, "MAX_CATCH_UP", 1)
        async with world.following(last="1;0:0,1:0,2:0,3:0") as follower:
            assert (await follower.until(2))[1] == ("reset", {"reason": "too_far_behind"})

    play(scenario)


def test_a_new_generation_and_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.01)

    async def scenario(world: World) -> None:
        generations = world.service.generations
        async with world.following() as follower:
            await follower.until(1)
            generations.number = 2
            assert (await follower.until(2))[1] == ("reset", {"reason": "generation_changed"})
            generations.number, generations.tag = 3, "listings@2"
            assert (await follower.until(3))[2] == ("reset", {"reason": "generation_changed"})
            world.change("L1", price=1)
            world.change("L2", tag="listings@2", price=2)
            assert changed(await follower.until(4)) == [("L2", 2)]

    play(scenario)


def test_a_stream_view_is_followed_from_batch_to_batch_and_generation_to_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.01)

    def told(events: list[tuple[str, Any]]) -> list[tuple[str, int]]:
        assert all(data["position"] is None for name, data in events if name == "change"), "no event made them"
        return [(data["key"], data["row"]["cents"]) for name, data in events if name == "change"]

    async def scenario(world: World) -> None:
        generations = world.service.generations
        generations.tag = "top_sellers@2"
        async with world.following() as follower:
            await follower.until(1)
            world.batch(7, {"tea": 450, "50% off/soap": 225}, "top_sellers@2.g1")
            world.batch(3, {"of a generation that is being built": 1}, "top_sellers@2.g2")
            assert sorted(told(await follower.until(3))) == [("50% off/soap", 225), ("tea", 450)]
            last = follower.last_id
        world.batch(8, {"tea": 900}, "top_sellers@2.g1")
        async with world.following(last=last) as follower:
            assert told(await follower.until(2)) == [("tea", 900)]
            generations.number = 2
            assert (await follower.until(3))[2] == ("reset", {"reason": "generation_changed"})
            world.batch(9, {"retired": 1}, "top_sellers@2.g1")
            world.batch(4, {"milk": 150}, "top_sellers@2.g2")
            assert told(await follower.until(4)) == [("tea", 900), ("milk", 150)]

    play(scenario, view="top_sellers")


@pytest.mark.parametrize("view", [gate_view(), cart_view()], ids=["in batches", "in real time"])
def test_the_patches_that_are_followed_are_those_that_loaders_take(view: StreamView) -> None:
    assert Live(view, 3, view.tag, {}).patch_tag == Target(view, 3).tag


def test_a_store_that_is_away_holds_changes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RETRY_S", 0.01)

    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.store.errors = [StoreUnavailable("PostgreSQL", "refused") for _ in range(3)]
            world.change("L1", price=1)
            assert changed(await follower.until(2)) == [("L1", 1)]
            assert world.store.errors == []

    play(scenario)


def test_a_store_that_is_far_behind_makes_followers_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_WAITING", 10)

    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.change("first", applied=False)
            for number in range(50):
                world.change(f"L{number}", applied=False)
            await world.read()
            world.apply()
            await until(lambda: ("reset", {"reason": "too_far_behind"}) in follower.events)

    play(scenario)


def test_a_slow_reader_gets_each_row_once_and_is_cut_off_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MAX_CHANGES", 5)

    async def scenario(world: World) -> None:
        async with world.following("key=L1", slow=True) as follower:
            await follower.until(1)
            world.change("L1", price=0)
            await follower.until(2)
            for price in range(1, 20):
                world.change("L1", price=price)
                await world.offered()
            follower.reads.set()
            assert changed(await follower.until(3)) == [("L1", 0), ("L1", 19)]
        async with world.following(slow=True) as follower:
            await follower.until(1)
            world.change("L1", price=0)
            await follower.until(2)
            for number in range(50):
                world.change(f"M{number}", price=number)
            await world.offered()
            follower.reads.set()
            events = await follower.until(3)
            assert events[-1] == ("end", {"reason": "too_slow"})
            await asyncio.sleep(0)
            assert follower.ended

    play(scenario)


def test_heartbeats_tell_where_the_follower_stands() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            await until(lambda: ": heartbeat\nid: 1;0:0,1:0,2:0,3:0\n\n" in follower.text)

    play(scenario, Limits(heartbeat_s=0.05))


def test_the_end_of_the_time_is_told_and_a_client_may_go_on_from_there() -> None:
    async def scenario(world: World) -> None:
        world.change("L1", price=1)
        async with world.following("for_ms=20") as follower:
            assert (await follower.until(2))[1] == ("end", {"reason": "time_is_up"})
            while not follower.ended:  # noqa: ASYNC110
                await asyncio.sleep(0)
            (*_, (name, _, last)) = follower.parsed()
            assert (name, last) == ("end", follower.last_id)
        world.change("L1", price=2)
        async with world.following("for_ms=60000", last) as follower:
            assert changed(await follower.until(2)) == [("L1", 2)]

    play(scenario)


def test_the_end_of_the_service_is_told() -> None:
    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.service.feeds.end("closing")
            assert (await follower.until(2))[1] == ("end", {"reason": "closing"})

    play(scenario)


def test_a_fault_is_told_and_whoever_comes_again_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            world.store.errors = [ZeroDivisionError("oops")]
            world.change("L1", price=1)
            assert (await follower.until(2))[1] == ("end", {"reason": "failed"})
        assert "oops" in caplog.text
        async with world.following() as follower:
            await follower.until(1)
            world.change("L1", price=2)
            assert changed(await follower.until(2)) == [("L1", 2)]

    play(scenario)


def test_a_feed_that_failed_takes_no_new_followers() -> None:
    async def scenario(world: World) -> None:
        async with world.following(slow=True) as stalled:
            await stalled.until(1)
            world.change("L1", price=1)
            await stalled.until(2)  # it reads nothing from here on
            world.store.errors = [ZeroDivisionError("oops")]
            world.change("L1", price=2)
            await until(lambda: not world.store.errors)
            await asyncio.sleep(0)
            async with world.following() as follower:
                await follower.until(1)
                world.change("L1", price=3)
                assert changed(await follower.until(2)) == [("L1", 3)]
            stalled.reads.set()
            await until(lambda: stalled.ended)
            assert stalled.events[-1] == ("end", {"reason": "failed"})

    play(scenario)


def test_there_is_a_bound_to_followers() -> None:
    async def scenario(world: World) -> None:
        object.__setattr__(world.service.feeds, "_max_followers", 1)
        async with world.following() as first:
            await first.until(1)
            second = Follower(slow=False, path="/views/listings/changes")
            await second.call(world.app, "", None)
            assert second.status == 503
            assert orjson.loads(second.text)["type"] == "urn:headwater:problem:too_many_followers"
            hit = REGISTRY.get_sample_value("headwater_limits_hit_total", {"limit": "too_many_followers"})
            assert hit is not None and hit >= 1

    play(scenario)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("from=x", "from"),
        ("from=1;0:1", "from"),
        ("from=²;0:0,1:0,2:0,3:0", "from"),
        (f"from={'9' * 5_000};0:0,1:0,2:0,3:0", "from"),
        ("for_ms=0", "for_ms"),
        ("for_ms=99999999999", "for_ms"),
        ("key=%00", "key"),
        ("&".join(f"key={number}" for number in range(101)), "key"),
        ("after=0:1", "after"),
    ],
)
def test_wrong_parameters(client: AppClient, query: str, parameter: str) -> None:
    problem = client.get(f"/views/listings/changes?{query}").json()
    assert (problem["status"], problem["parameter"]) == (422, parameter)


def test_a_view_that_is_not_built(client: AppClient, service: FakeService) -> None:
    service.generations.missing.add("listings")
    assert client.get("/views/listings/changes").status_code == 503
