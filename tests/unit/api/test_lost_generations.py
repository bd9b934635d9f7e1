"""A store that has lost a generation, as after an index was deleted by hand: other stores answer, and nothing spins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.changes import feed
from headwater.api.reading import GenerationGone
from headwater.projections.stores.declared import Cache, Postgres
from tests.support.table_views import table_views
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader
from tests.unit.api.followers import World, changed, play, until


class Lost:
    """Loses the rows of a store, and counts who asks for them."""

    def __init__(self, store: MemoryReader, monkeypatch: pytest.MonkeyPatch, *, also_ledgers: bool = False) -> None:
        self.asked = 0
        for name in ("get_many",) + (("next_offsets",) if also_ledgers else ()):
            monkeypatch.setattr(store, name, self._gone)

    async def _gone(self, *_: Any) -> None:
        self.asked += 1
        raise GenerationGone("index_not_found_exception")


def test_changes_pause_while_the_only_store_has_lost_the_rows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed, "RETRY_S", 3600.0)

    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            lost = Lost(world.store, monkeypatch)
            world.change("L1", price=1)
            await until(lambda: 'changes of "listings" are delayed' in caplog.text)
            assert lost.asked == 1

    play(scenario)


def test_changes_come_once_the_rows_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "RETRY_S", 0.01)

    async def scenario(world: World) -> None:
        async with world.following() as follower:
            await follower.until(1)
            with monkeypatch.context() as patched:
                lost = Lost(world.store, patched)
                world.change("L1", price=1)
                await until(lambda: lost.asked > 2)
            assert changed(await follower.until(2)) == [("L1", 1)]

    play(scenario)


@pytest.mark.parametrize("also_ledgers", [False, True])
def test_changes_are_read_from_another_store_that_has_the_rows(
    monkeypatch: pytest.MonkeyPatch, also_ledgers: bool
) -> None:
    async def scenario(world: World) -> None:
        other = world.service.readers["postgres"]
        other.rows["top_sellers"], other.reached = world.store.rows["top_sellers"], world.store.reached
        async with world.following() as follower:
            await follower.until(1)
            Lost(world.store, monkeypatch, also_ledgers=also_ledgers)
            world.batch(1, {"pen": 7}, "top_sellers@2.g1")
            other.reached = world.store.reached
            (_, (name, change)) = await follower.until(2)
            assert (name, change["row"]["cents"]) == ("change", 7)

    play(scenario, view="top_sellers")


def test_a_row_is_read_from_another_store_that_has_it(
    service: FakeService, stored: MemoryReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = replace(table_views()["listings"], stores=(Postgres(), Cache()))
    object.__setattr__(service, "views", {**service.views, "listings": view})
    Lost(service.readers["valkey"], monkeypatch)
    client = AppClient(create_app(service))
    assert client.get("/views/listings/L1").json()["city"] == "GALT"
    assert client.get("/views/listings/rows?key=L1").json()["rows"][0]["city"] == "GALT"
