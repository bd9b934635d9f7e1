"""Where the live query starts: nobody who waits for patches may miss any."""

from __future__ import annotations

from eventlog.settings import LogSettings
from projections.generations import Generations
from projections.registry import ViewRegistry
from projections.service import Service
from projections.stores.store import Target
from tests.contracts.opened_stores import Server
from tests.contracts.view_histories import BY_GROUP, BY_THING


def test_the_live_query_starts_at_the_lowest_place_that_anything_live_or_being_built_waits_for(
    servers: dict[str, Server], settings: LogSettings
) -> None:
    stores = servers["postgres"].settings
    generations, start = Generations(stores.postgres, settings.environment), dict.fromkeys(range(4), 0)
    generations.prepare()
    service = Service(settings, stores, ViewRegistry([("here", BY_GROUP), ("here", BY_THING)]))
    assert service.applied() == {0: 0, 1: 0}

    bases = {"postgres": {0: 40, 1: 50}, "elasticsearch": {0: 45, 1: 30}, "valkey": {0: 70, 1: 60}}
    made = generations.begin(BY_GROUP, {0: 70, 1: 60}, start)
    for name, base in bases.items():
        servers[name].open().create(Target(BY_GROUP, made.generation), base, start)
    generations.swap(BY_GROUP.name, made.generation)
    assert service.applied() == {0: 40, 1: 30}

    generations.begin(BY_THING, {0: 35, 1: 80}, start)
    assert service.applied() == {0: 35, 1: 30}
