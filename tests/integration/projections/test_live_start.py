"""Where the live query starts: nobody who waits for patches may miss any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.generations.registry.publishing import drop_leftovers
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.live_start import first_unsent
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.stores.store import Target
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.waiting import eventually


def build(server: RealServer, target: Target, base: Mapping[str, int]) -> None:
    store = server.open()
    store.create(target, base, dict.fromkeys(range(4), 0))
    store.finish(target)


def test_the_live_query_starts_at_the_lowest_place_that_anything_live_or_being_built_waits_for(
    servers: dict[str, RealServer], settings: LogSettings
) -> None:
    stores = servers["postgres"].settings
    generations, start = Generations(stores.postgres, settings.environment), dict.fromkeys(range(4), 0)
    generations.prepare()
    service = Service(settings, stores, ViewRegistry([("here", BY_GROUP), ("here", BY_THING)]))
    log = MemoryLog(partitions=2)  # nothing was sent, so the stores are asked
    for number in range(200):
        log.submit(Entry(EVENTS, f"event/{number}", b"{}", 1), number % 2).result()
    assert first_unsent(service, log) == {"0": 0, "1": 0}

    bases = {"postgres": {"0": 40, "1": 50}, "elasticsearch": {"0": 45, "1": 30}, "valkey": {"0": 70, "1": 60}}
    made = generations.begin(BY_GROUP, {"0": 0, "1": 0}, start, {})
    for name, base in bases.items():
        build(servers[name], Target(BY_GROUP, made.generation), base)
    generations.swap(BY_GROUP.name, made.generation)
    assert first_unsent(service, log) == {"0": 40, "1": 30}

    with generations.rebuilding(BY_THING.name):
        left = generations.begin(BY_THING, {"0": 5, "1": 5}, start, {})
        generations.begin(BY_THING, {"0": 35, "1": 80}, start, {})
        assert first_unsent(service, log) == {"0": 35, "1": 30}
        with generations.rebuilding("then"):
            generations.begin(replace(BY_THING, name="then"), {"0": 1, "1": 1}, start, {}, BY_THING.name, "until then")
            generations.begin(replace(BY_GROUP, version=2), {"0": 1, "1": 1}, start, {})
            assert first_unsent(service, log) == {"0": 35, "1": 30}, "neither waits for the patches of this code"
            drop_leftovers(generations, stores)
            assert {generation.view for generation in generations.being_built()} == {BY_THING.name, "then"}
    # PostgreSQL releases a lock some time after its connection was closed
    eventually(lambda: first_unsent(service, log) == {"0": 40, "1": 30}, "nobody waits any more")
    build(servers["postgres"], Target(BY_THING, left.generation), {})
    drop_leftovers(generations, stores)
    assert [(generation.view, generation.state) for generation in generations.all()] == [(BY_GROUP.name, "live")]
    assert not servers["postgres"].open().ledgers(Target(BY_THING, left.generation))
