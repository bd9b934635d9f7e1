"""What the rebuild of one view has open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.rebuild.engine import Engine
from headwater.projections.generations.registry.database import RebuildLock
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.stores.store import ViewStore


@dataclass(frozen=True)
class Resources:
    """What a rebuild works with: see `Builder.resources`.

    settings, log, generations, engine: of the deployment. lock: on rebuilding the view. stores: of the view, opened for
    this rebuild. letters: for patches that it leaves out.
    """

    settings: LogSettings
    log: EventLog
    generations: Generations
    engine: Engine
    lock: RebuildLock
    stores: Sequence[ViewStore]
    letters: DeadLetters
