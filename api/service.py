"""The parts that the routes need, passed to `create_app` by the composition root."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headwater.api.changes.feeds import ChangeFeeds
from headwater.api.guard.guard import Guard
from headwater.api.guard.own_streams import OwnStreams
from headwater.api.hosts import ANY_HOST, Hosts
from headwater.api.limits.requests import Limits
from headwater.api.limits.work import Capacity, Threads, Turns, Work
from headwater.api.lookups import Lookups
from headwater.api.personal import PersonalValues
from headwater.api.ports import (
    Auditor,
    CapturedSources,
    EventReader,
    Gateway,
    Generations,
    InstanceLog,
    Observed,
    Overseer,
    Recorder,
    Resource,
    ViewReader,
)
from headwater.api.requests.large_bodies import Bodies
from headwater.api.waiting.waiter import Waiter
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import AnyProcess
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.erasing.person import InClear
from headwater.eventlog.settings import LogSettings
from headwater.projections.view import View


@dataclass(frozen=True)
class Service:
    """Everything that answers requests.

    workers: processes that serve the same address. environment: the name of the deployment.
    instance: a random id of this process.
    guard: knows who may call. hosts: that requests may name.
    origins: of websites that may read the answers in a browser.
    readers: by the name of their store. resources: opened in order when the application starts, closed in reverse.
    reading, writing, in_flight: shared by all requests with many lines: per turn of the event loop, a limited part of
    their lines is read, and one of them writes answers; and a limited number of their commands wait for receipts.
    bodies: reads large bodies in threads. folding: threads that fold streams. work: admits what takes long.
    in_clear: the columns that stores have in clear, for erasures; None: nothing is personal.
    """

    commands: CommandRegistry
    observations: ObservationRegistry
    views: Mapping[str, View]
    gateway: Gateway
    recorder: Recorder
    events: EventReader
    audit: Auditor
    observed: Observed
    captured: CapturedSources
    processes: Mapping[str, AnyProcess]
    instances: InstanceLog
    generations: Generations
    readers: Mapping[str, ViewReader]
    waiter: Waiter
    lookups: Lookups
    feeds: ChangeFeeds
    overseer: Overseer
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    resources: Sequence[Resource] = ()
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

    @cached_property
    def own_streams(self) -> OwnStreams:
        """Which streams exist for a caller. Raises DeclarationError."""
        return OwnStreams(self.commands)

    @cached_property
    def personal(self) -> PersonalValues:
        """Opens sealed values, or hides them."""
        return PersonalValues(self.commands, self.observations)

    @cached_property
    def in_flight(self) -> Capacity:
        """Has room for each command of a request with many lines that waits for its receipt."""
        return Capacity(self.limits.in_flight_in_all, self.limits.in_flight_bytes)
