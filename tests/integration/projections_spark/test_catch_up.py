"""A view that patches cannot bring up to date is told from one that is only behind, and replayed by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.compose.settings import StackSettings
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.rates import Rates
from headwater.projections.generations.upkeep.upkeep import Upkeep
from headwater.projections.reading.reader import fold
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.testing.contracts import history
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, Server
from tests.contracts.view_histories import some_folds
from tests.support.logged import append, logged, settle
from tests.support.spark_rows import session

BY_GROUP = some_folds("by_group", "group")
STORES = ["postgres", "elasticsearch", "valkey"]


class Deployment:
    """One view in three stores, and its log; nothing runs."""

    def __init__(self, settings: LogSettings, stores: StoreSettings) -> None:
        self.log = KafkaLog(settings)
        self.settings, self.stores = settings, stores
        generations = Generations(stores.postgres, settings.environment)
        generations.prepare()
        self.lags = Lags(settings, stores, ViewRegistry([("here", BY_GROUP)]), generations, self.log)
        engine = new_engine(settings, self.log, session, EngineChoice.LOCAL)
        queries = SparkQueries(settings, session)
        self.rebuilder = Rebuilder(settings, stores, self.log, generations, engine, queries)

    def look(self) -> list[Lag]:
        """A look that sees what was committed."""
        settle(self.log)
        return self.lags.look()


@pytest.fixture
def deployment(log_settings: LogSettings, stack: StackSettings) -> Iterator[tuple[Deployment, dict[str, Server]]]:
    at = stack.endpoints
    stores = StoreSettings(
        log_settings.environment, at.postgres, at.elasticsearch, at.valkey, log_settings.patch_partitions
    )
    with OnPostgres(stores) as postgres, OnElasticsearch(stores) as elasticsearch, OnValkey(stores) as valkey:
        one = Deployment(log_settings, stores)
        yield one, dict(zip(STORES, (postgres, elasticsearch, valkey), strict=True))
        one.log.close()


@pytest.mark.complete
def test_what_is_lost_is_replayed_and_what_is_behind_is_left_to_patches(
    deployment: tuple[Deployment, dict[str, Server]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.projections.generations.upkeep.lag.STALLED_S", 0.0)
    one, servers = deployment
    sources = [
        source for source in history(BY_GROUP, list(BY_GROUP.plan.events.values()), 3, length=300).sources
        if source.position.partition < one.settings.partitions
    ]  # fmt: skip
    upkeep = Upkeep(one.lags, lambda: nullcontext(one.rebuilder.rebuild_all), Rates(tmp_path / "rates"))
    assert [lag.standing for lag in one.look()] == ["not built"] * 3

    append(one.log, sources[:200])
    settle(one.log)
    one.rebuilder.rebuild(BY_GROUP)
    assert [(lag.standing, lag.lag_events) for lag in one.look()] == [("caught up", 0)] * 3

    append(one.log, sources[200:])
    late = [(lag.standing, lag.lag_events, lag.lag_patches) for lag in one.look()]
    assert late == [("behind", len(sources) - 200, 0)] * 3
    assert all((lag.freshness_s or 0) > 0 for lag in one.look())
    upkeep.look()
    stalled = upkeep.look()
    assert {(lag.standing, lag.problem) for lag in stalled} == {
        ("stalled", "the live query makes no progress: see its log")
    }

    with psycopg.connect(one.stores.postgres) as connection:
        connection.execute(f'DELETE FROM "{one.settings.environment}".ledger')
    assert [lag.standing for lag in upkeep.look()] == ["lost", "stalled", "stalled"]
    healed = one.look()
    assert [(lag.standing, lag.generation) for lag in healed] == [("caught up", 2)] * 3
    _retention_passes(one.settings)
    assert {lag.standing for lag in upkeep.look()} == {"lost"}
    assert [(lag.standing, lag.generation) for lag in one.look()] == [("caught up", 3)] * 3
    for server in servers.values():
        assert server.rows(BY_GROUP) == fold(BY_GROUP, logged(one.log))


def _retention_passes(settings: LogSettings) -> None:
    """Patches come that nobody reads, and are deleted."""
    log = KafkaLog(settings)
    for partition in range(settings.patch_partitions):
        log.submit(Entry(PATCHES, "other@1/x", b"{}", 1), partition).result()
    log.close()
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    places = [TopicPartition(settings.topic(PATCHES), partition, 1) for partition in range(settings.patch_partitions)]
    for future in admin.delete_records(places).values():
        future.result()
