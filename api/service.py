"""The parts that the routes need, and how they are made from settings; only this module chooses adapters."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headwater.api.changes.feeds import ChangeFeeds
from headwater.api.guard.caller import Caller, OwnStreams
from headwater.api.guard.guard import Guard, open_guard
from headwater.api.guard.scopes import declared_names
from headwater.api.limits import READS_AT_ONCE, Capacity, Limits, Threads, Turns, Work
from headwater.api.lookups import Lookups, PersonalValues
from headwater.api.reading import Generations, Live, ViewReader, read_live
from headwater.api.reads.deployment import DeploymentReader
from headwater.api.reads.log import InstanceReader, LogReader, TopicLedgers
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.registry import LiveGenerations
from headwater.api.reads.scans import AuditReader, ObservationReader
from headwater.api.reads.valkey import ValkeyReader
from headwater.api.requests.body import Bodies
from headwater.api.settings import ANY_HOST, ApiSettings, Hosts
from headwater.api.waiting.awaited import EventReader
from headwater.api.waiting.captured import CapturedReader
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.observation import ObservationRegistry, Report
from headwater.commands.declaring.process import AnyProcess, ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.prepared_command import PreparedCommand
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.commands.sending.stored_receipts import open_stored
from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.capturing.control_topics import last_snapshot
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.envelope import Position
from headwater.eventlog.erasing.person import InClear
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.installed import install, opened_from, uninstall
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.registry import Generations as GenerationRegistry
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.erasing import ClearErasure
from headwater.projections.view import View

if TYPE_CHECKING:
    from headwater.api.reads.elasticsearch import ElasticsearchReader
    from headwater.eventlog.personal.vault import Vault

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Service:
    """Everything that answers requests.

    workers: processes that serve the same address. environment: the name of the deployment.
    instance: a random id of this process.
    own_streams: which streams exist for a caller. personal: opens encrypted values, or hides them.
    guard: knows who may call. hosts: that requests may name.
    origins: of websites that may read the answers in a browser.
    readers: by the name of their store. opened: holds all connections and threads, for as long as the application runs;
    its argument says whether commands can be sent.
    reading, writing, in_flight: shared by all requests with many lines: per turn of the event loop, a limited part of
    their lines is read, and one of them writes answers; and a limited number of their commands wait for receipts.
    bodies: reads large bodies in threads. folding: threads that fold streams. work: admits what takes long.
    in_clear: the columns that stores have in plaintext, for erasures; None: nothing is personal.
    """

    commands: CommandRegistry
    observations: ObservationRegistry
    views: Mapping[str, View]
    own_streams: OwnStreams
    personal: PersonalValues
    gateway: Gateway
    recorder: Recorder
    events: EventReader
    audit: AuditReader
    observed: ObservationReader
    captured: CapturedReader
    processes: Mapping[str, AnyProcess]
    instances: InstanceReader
    generations: Generations
    readers: Mapping[str, ViewReader]
    waiter: Waiter
    lookups: Lookups
    feeds: ChangeFeeds
    overseer: DeploymentReader
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    opened: Callable[[bool], AbstractAsyncContextManager[Any]] = nullcontext
    environment: str = LogSettings.environment
    hosts: Hosts = ANY_HOST
    origins: tuple[str, ...] = ()
    guard: Guard = field(default_factory=Guard)
    instance: str = field(default_factory=lambda: uuid.uuid4().hex)
    reading: Turns = field(default_factory=Turns)
    writing: Turns = field(default_factory=Turns)
    bodies: Bodies = field(default_factory=Bodies)
    folding: Threads = field(default_factory=lambda: Threads(2, "folding"))
    work: Work = field(default_factory=Work)
    in_clear: InClear | None = None

    async def read(
        self, reader: ViewReader, view: View, ask: Callable[[Live], Awaitable[Answer]], caller: Caller | None = None
    ) -> tuple[Answer, Live]:
        """What `ask` reads of the live generation of a view in one of its stores, once that admits another query.

        caller: who reads its rows. Raises Overloaded, and what `read_live` raises.
        """
        async with self.work.reads[reader.name].place():
            return await read_live(self.generations, view, ask, caller)

    @cached_property
    def in_flight(self) -> Capacity:
        """Has room for each command of a request with many lines that waits for its receipt."""
        return Capacity(self.limits.in_flight_in_all, self.limits.in_flight_bytes)


class Gateway(Protocol):
    """Sends commands to the log and returns their receipts."""

    @property
    def ready(self) -> bool:
        """Whether every earlier receipt is known."""

    @property
    def awaited(self) -> int:
        """How many commands wait for their receipts."""

    def send(self, commands: Sequence[PreparedCommand]) -> Sequence[asyncio.Future[Receipt]]:
        """Append commands in this order; the future of each has its receipt, LogUnavailable or Unanswered."""

    async def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        """The receipt of a command of a stream, None if there is none; origin: who chose the id, None: any."""


class Recorder(Protocol):
    """Appends observations to the log."""

    async def record(
        self,
        reports: Sequence[Report[Any]],
        *,
        correlation_id: str | None = None,
        traceparent: str | None = None,
        actor: str | None = None,
    ) -> list[Position]:
        """Append all and return their positions, once they are stored; raises LogUnavailable."""


class _Stores:
    """The clients of the stores of views, which connect once they are opened."""

    def __init__(self, settings: ApiSettings, views: Mapping[str, View]) -> None:
        stores, environment = settings.stores, settings.log.environment
        # the registry and ledgers, which everything needs, never wait for queries of rows
        self._rows, self._registry = (Database(stores.postgres, environment, number) for number in (READS_AT_ONCE, 2))
        self._valkey = ValkeyReader(stores.valkey, environment)
        self._opened: list[Database | ElasticsearchReader] = [self._rows, self._registry]
        self.generations = LiveGenerations(self._registry, environment)
        self.readers: dict[str, ViewReader] = {
            Postgres.name: PostgresReader(self._rows, environment, self._registry),
            Cache.name: self._valkey,
        }
        if any(view.store(Elasticsearch.name) is not None for view in views.values()):
            from headwater.api.reads.elasticsearch import ElasticsearchReader  # noqa: PLC0415 - a third of the API's start

            index = ElasticsearchReader(stores.elasticsearch, environment, settings.log.patch_partitions)
            self.readers[Elasticsearch.name] = index
            self._opened.append(index)

    async def open(self, stack: AsyncExitStack) -> None:
        """Open them, until the end of `stack`."""
        for store in self._opened:
            await store.open()
            stack.push_async_callback(store.close)
        stack.push_async_callback(self._valkey.close)


def compose_service(settings: ApiSettings) -> Service:
    """The service on Kafka and the three stores; connects to nothing yet. Raises DeclarationError and its like."""
    modules, environment = settings.log.modules, settings.log.environment
    partitions, patch_partitions = settings.log.partitions, settings.log.patch_partitions
    commands, observations = CommandRegistry.load(modules), ObservationRegistry.load(modules)
    registry, sources = ViewRegistry.load(modules), SourceRegistry.load(modules).sources
    views, own_streams, personal = registry.views, OwnStreams(commands), PersonalValues(commands, observations)

    log, stores, work = KafkaLog(settings.log), _Stores(settings, views), Work()
    receipts = partial(open_stored, log, settings.log.state / "api" / environment, settings.log.receipts_days)
    gateway = CommandGateway(log, commands, timeout_s=settings.limits.answer_timeout_s, open_index=receipts)
    events, topics = LogReader(log), TopicLedgers(log, patch_partitions)
    captured = CapturedReader(
        log, sources, lambda source: last_snapshot(settings.log, SourceNames.of(source, environment))
    )
    waiter = Waiter(events, captured, stores.generations, topics, views, partitions, patch_partitions)
    lookups = Lookups(views, stores.readers, stores.generations, waiter, own_streams, personal, work.reads)
    feeds = ChangeFeeds(
        log, stores.generations, stores.readers, lookups, own_streams, patch_partitions, settings.limits.followers
    )
    stored_in = GenerationRegistry(settings.stores.postgres, environment).stores
    service = Service(
        instance=settings.server.instance or uuid.uuid4().hex,
        commands=commands,
        observations=observations,
        views=views,
        own_streams=own_streams,
        personal=personal,
        gateway=gateway,
        recorder=ObservationRecorder(log),
        events=events,
        audit=AuditReader(log),
        observed=ObservationReader(log),
        captured=captured,
        processes=ProcessRegistry.load(modules).processes,
        instances=InstanceReader(log),
        generations=stores.generations,
        readers=stores.readers,
        waiter=waiter,
        lookups=lookups,
        feeds=feeds,
        overseer=DeploymentReader(settings.log, settings.stores, registry, log),
        limits=settings.limits,
        workers=settings.server.workers,
        work=work,
        environment=environment,
        hosts=settings.hosts,
        origins=settings.origins,
        guard=open_guard(settings.guard, declared_names(commands, observations, views)),
        in_clear=ClearErasure(settings.stores, stored_in) if commands.personal else None,
    )
    vault = opened_from(os.environ, environment, LoggedKeys(os.environ)) if personal.any else None
    return replace(service, opened=partial(_opened, service, stores, gateway, (events, topics), vault))


@asynccontextmanager
async def _opened(
    service: Service,
    stores: _Stores,
    gateway: CommandGateway,
    readers: Sequence[LogReader | TopicLedgers],
    vault: Vault | None,
    sends: bool,
) -> AsyncIterator[None]:
    """Connections and threads of a service, until the end; sends: whether commands can be sent."""
    async with AsyncExitStack() as stack:
        if vault is not None:  # nothing connects to its store before it is used
            install(vault)
            stack.push_async_callback(asyncio.to_thread, uninstall, vault)
        in_threads = (service.overseer, service.audit, service.observed, service.instances, service.captured)
        for part in (service.guard, *in_threads, *readers, service.bodies, service.folding):
            stack.callback(part.close)
        await stores.open(stack)
        if sends:
            await gateway.start()
            stack.push_async_callback(gateway.close)
        stack.push_async_callback(service.feeds.close)
        yield
