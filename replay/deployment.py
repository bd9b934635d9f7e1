"""What the command works on: the settings, registries and log of one deployment, opened once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.generations import Generations
from projections.registry import ViewRegistry
from projections.settings import StoreSettings


@dataclass(frozen=True)
class Deployment:
    """One deployment, as its environment variables describe it."""

    settings: LogSettings
    stores: StoreSettings
    views: ViewRegistry
    generations: Generations
    log: KafkaLog


@contextmanager
def open_deployment(env: Mapping[str, str]) -> Iterator[Deployment]:
    """Open the deployment that `env` describes; nothing is asked of a server yet."""
    settings, stores = LogSettings.from_environment(env), StoreSettings.from_environment(env)
    views = ViewRegistry.load(settings.modules)
    log = KafkaLog(settings)
    try:
        yield Deployment(settings, stores, views, Generations(stores.postgres, settings.environment), log)
    finally:
        log.close()
