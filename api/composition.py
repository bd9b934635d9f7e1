"""Builds the service from settings; only this module chooses adapters."""

from __future__ import annotations

import asyncio
import os
import uuid
from functools import partial
from typing import TYPE_CHECKING

from headwater.api.changes.feeds import ChangeFeeds
from headwater.api.guard.caller import OwnStreams
from headwater.api.guard.guard import open_guard
from headwater.api.guard.scopes import declared_names
from headwater.api.limits import Threads
from headwater.api.lookups import Lookups
from headwater.api.personal import PersonalValues
from headwater.api.reading import Resource, ViewReader
from headwater.api.reads.deployment import DeploymentReader
from headwater.api.reads.elasticsearch import ElasticsearchReader
from headwater.api.reads.log import InstanceReader, LogReader, TopicLedgers
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.registry import LiveGenerations
from headwater.api.reads.scans import AuditReader, ObservationReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.api.requests.large_bodies import Bodies
from headwater.api.service import Service
from headwater.api.settings import ApiSettings
from headwater.api.waiting.captured import CapturedReader
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.commands.sending.stored_receipts import open_stored
from headwater.eventlog.capturing.control_topics import last_snapshot
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.installed import install, opened_from, uninstall
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.erasing import ClearErasure, clear_stores

if TYPE_CHECKING:
    from headwater.eventlog.personal.vault import Vault


class GatewayResource:
    """The gateway as a resource of the application."""

    def __init__(self, gateway: CommandGateway) -> None:
        self._gateway = gateway

    async def open(self) -> None:
        """Begin to follow receipts."""
        await self._gateway.start()

    async def close(self) -> None:
        """Stop following."""
        await self._gateway.close()


class ThreadsResource:
    """Threads as a resource of the application."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def open(self) -> None:
        """Nothing to do: they are started when they are needed."""

    async def close(self) -> None:
        """End them."""
        self._threads.close()


class VaultResource:
    """The keys of persons as a resource of the application."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def open(self) -> None:
        """Make it the vault of this process; nothing connects to its store before it is used."""
        install(self._vault)

    async def close(self) -> None:
        """Forget all keys."""
        await asyncio.to_thread(uninstall, self._vault)


def compose_service(settings: ApiSettings) -> Service:
    """The service on Kafka and the three stores; connects to nothing yet. Raises DeclarationError and its like."""
    environment, stores = settings.log.environment, settings.stores
    patch_partitions = settings.log.patch_partitions
    commands = CommandRegistry.load(settings.log.modules)
    views = ViewRegistry.load(settings.log.modules)
    log = KafkaLog(settings.log)
    receipts = partial(open_stored, log, settings.log.state / "api" / environment, settings.log.receipts_days)
    gateway = CommandGateway(log, commands, timeout_s=settings.limits.answer_timeout_s, open_index=receipts)
    events, audit, instances = LogReader(log), AuditReader(log), InstanceReader(log)
    observed = ObservationReader(log)
    sources = SourceRegistry.load(settings.log.modules).sources
    captured = CapturedReader(
        log, sources, lambda source: last_snapshot(settings.log, SourceNames.of(source, environment))
    )
    database = Database(stores.postgres, environment)
    generations = LiveGenerations(database, environment)
    elasticsearch = ElasticsearchReader(stores.elasticsearch, environment, patch_partitions)
    cache = ValkeyReader(stores.valkey, environment)
    readers: dict[str, ViewReader] = {
        "postgres": PostgresReader(database, environment),
        "elasticsearch": elasticsearch,
        "valkey": cache,
    }
    topics = TopicLedgers(log, patch_partitions)
    waiter = Waiter(events, captured, generations, topics, views.views, settings.log.partitions, patch_partitions)
    observations = ObservationRegistry.load(settings.log.modules)
    personal = PersonalValues(commands, observations)
    lookups = Lookups(views.views, readers, generations, waiter, OwnStreams(commands), personal)
    feeds = ChangeFeeds(log, generations, readers, lookups, patch_partitions, settings.limits.followers)
    bodies, folding = Bodies(), Threads(2, "folding")
    guard = open_guard(settings.guard, declared_names(commands, observations, views.views))
    overseer = DeploymentReader(settings.log, stores, views, log)
    resources: tuple[Resource, ...] = (
        *([VaultResource(opened_from(os.environ, environment))] if personal.any else []),
        guard,
        overseer,
        events,
        audit,
        observed,
        instances,
        captured,
        topics,
        database,
        elasticsearch,
        cache,
        GatewayResource(gateway),
        feeds,
        bodies,
        ThreadsResource(folding),
    )
    return Service(
        instance=settings.server.instance or uuid.uuid4().hex,
        commands=commands,
        observations=observations,
        views=views.views,
        gateway=gateway,
        recorder=ObservationRecorder(log),
        events=events,
        audit=audit,
        observed=observed,
        captured=captured,
        processes=ProcessRegistry.load(settings.log.modules).processes,
        instances=instances,
        generations=generations,
        readers=readers,
        waiter=waiter,
        lookups=lookups,
        feeds=feeds,
        overseer=overseer,
        limits=settings.limits,
        workers=settings.server.workers,
        bodies=bodies,
        folding=folding,
        resources=resources,
        environment=environment,
        hosts=settings.hosts,
        origins=settings.origins,
        guard=guard,
        in_clear=ClearErasure(stores, clear_stores(views.views.values())) if commands.personal else None,
    )
