"""What the tests of loaders share: a log, the three stores, and a producer of patches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from headwater.compose.settings import StackSettings
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, RealServer
from tests.support.ordered_producer import ordered_producer
from tests.support.patience import patient


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    with patient():
        yield


@pytest.fixture
def settings(log_settings: LogSettings) -> LogSettings:
    return log_settings


@pytest.fixture
def servers(settings: LogSettings, stack: StackSettings) -> Iterator[dict[str, RealServer]]:
    at = stack.endpoints
    stores = StoreSettings(settings.environment, at.postgres, at.elasticsearch, at.valkey, settings.patch_partitions)
    with OnPostgres(stores) as postgres, OnElasticsearch(stores) as elasticsearch, OnValkey(stores) as valkey:
        yield {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey}


@pytest.fixture
def stores(servers: dict[str, RealServer]) -> StoreSettings:
    return servers["postgres"].settings


@pytest.fixture
def producer(settings: LogSettings) -> Producer:
    return ordered_producer(settings.bootstrap)
