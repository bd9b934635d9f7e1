"""Following a view with personal values while persons are erased: who shows them reads again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.api.changes import changed_rows, feed
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.personal import vault
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import PATCHES
from tests.unit.api.fake_service import fake_service
from tests.unit.api.followers import World, play_in, until


class Customers(World):
    """C1, C2 and others, who are followed with their names."""

    def __init__(self) -> None:
        super().__init__()
        self.view, self.service = "customers", fake_service(modules=["tests.support.personal_customers"])
        self.log, self.store = self.service.log, self.service.readers["postgres"]
        self.store.rows["customers"] = {}
        self.apply()
        self.app = create_app(self.service)

    def named(self, person: str, name: str) -> None:
        sealed = installed().seal(person, "customer.registered", "name", name)
        row = dict.fromkeys(self.service.views["customers"].types) | {"customer_id": person, "name": sealed}
        self.store.rows["customers"][person] = row
        self.events += 1
        value = orjson.dumps({"p": 3, "o": self.events, "i": 0, "t": 1, "c": {"name": sealed}})
        tag = self.service.views["customers"].tag
        self.log.submit(Entry(PATCHES, f"{tag}/{person}", value, 1), partition_of(f"{tag}/{person}", 4))
        self.apply()


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch, keys: MemoryKeys) -> None:
    monkeypatch.setattr(feed, "LOOK_S", 0.01)
    monkeypatch.setattr(changed_rows, "FORGOTTEN_S", 0.05)
    monkeypatch.setattr(vault, "LEASE_S", 0.0)


def resets(events: list[tuple[str, Any]]) -> list[str]:
    return [data["reason"] for name, data in events if name == "reset"]


def names(events: list[tuple[str, Any]]) -> list[str]:
    return [data["row"]["name"] for name, data in events if name == "change"]


def test_who_follows_reads_again_once_a_person_is_erased_and_gets_no_value_from_before(keys: MemoryKeys) -> None:
    async def scenario(world: Customers) -> None:
        async with world.following() as follower, world.following(slow=True) as slow:
            await follower.until(1)
            await slow.until(1)
            world.named("C1", "Ada Canary")
            assert names(await follower.until(2)) == ["Ada Canary"]
            await until(lambda: "change" in slow.text)  # it is sent the first change, and takes no other
            for person in ("C1", "C2"):
                world.named(person, f"{person} Canary, later")
            await follower.until(4)
            keys.erase("C1")
            assert resets(await follower.until(5)) == ["person_erased"]
            slow.reads.set()
            await until(lambda: resets(slow.events) == ["person_erased"])
            after = slow.text.partition("reset")[2]
            assert "C1 Canary" not in slow.text
            assert "Ada" not in after
            world.named("C2", "Grace Canary")
            await until(lambda: "Grace Canary" in names(slow.events))
            assert resets(follower.events) == ["person_erased"], "once"

    play_in(Customers, scenario)


def test_who_returns_after_an_erasure_reads_again(keys: MemoryKeys) -> None:
    async def scenario(world: Customers) -> None:
        world.named("C1", "Ada Canary")
        async with world.following() as follower:
            await follower.until(1)
            world.named("C1", "Ada Canary")
            await follower.until(2)
            last = follower.last_id
        async with world.following(last=last) as follower:
            world.named("C2", "Grace Canary")
            events = await follower.until(2)
            assert (resets(events), names(events)) == ([], ["Grace Canary"])
        keys.erase("C1")
        for place in (last, last.rpartition(";")[0]):  # the latter is of a release before
            async with world.following(last=place) as follower:
                assert resets(await follower.until(2)) == ["person_erased"]

    play_in(Customers, scenario)


def test_keys_that_are_unavailable_for_a_moment_are_no_erasure(keys: MemoryKeys) -> None:
    async def scenario(world: Customers) -> None:
        async with world.following() as follower:
            await follower.until(1)
            keys.is_away = True
            (found,) = world.service.feeds._feeds.values()
            for _ in range(3):
                assert found._erasures is not None and not await found._erasures.are_new()
            keys.is_away = False
            world.named("C1", "Ada Canary")
            assert names(await follower.until(2)) == ["Ada Canary"]
            assert resets(follower.events) == []

    play_in(Customers, scenario)
