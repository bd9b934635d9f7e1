"""The parts that the routes are made of, handed to `create_app` by the composition root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from api.changes.feeds import ChangeFeeds
from api.lookups import Lookups
from api.ports import Auditor, EventReader, Gateway, Generations, Recorder, Resource, ViewReader
from api.settings import Limits
from api.waiting import Waiter
from commands.observation import ObservationRegistry
from commands.registry import CommandRegistry
from projections.view import TableView


@dataclass(frozen=True)
class Service:
    """Everything that answers requests.

    readers: by the name of their store. resources: opened in order when the application starts, closed in reverse.
    """

    commands: CommandRegistry
    observations: ObservationRegistry
    views: Mapping[str, TableView]
    gateway: Gateway
    recorder: Recorder
    events: EventReader
    audit: Auditor
    generations: Generations
    readers: Mapping[str, ViewReader]
    waiter: Waiter
    lookups: Lookups
    feeds: ChangeFeeds
    limits: Limits = field(default_factory=Limits)
    resources: Sequence[Resource] = ()
