"""What the rebuild of one view has open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from projections.generations.rebuild.engine import Engine
from projections.generations.registry.database import RebuildLock
from projections.generations.registry.registry import Generations
from projections.loading.dead_letters import DeadLetters
from projections.stores.store import ViewStore


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
