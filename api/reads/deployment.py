"""What operators see of a deployment: the state of everything, generations, dead letters and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from headwater.api.limits.work import Threads
from headwater.api.ports import DeploymentLook
from headwater.eventlog.audit.trail import AuditRecord, last_of_each, read_trail
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS
from headwater.projections.errors import ProjectionError
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.rebuild_progress import RebuildProgress
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.upkeep.lag import Looks
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.letter_metrics import LetterMetrics
from headwater.projections.generations.upkeep.view_metrics import ViewMetrics
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.view import View
from headwater.replay import parts
from headwater.replay.parts import Checks, Fault, Part

MAX_LETTERS: Final = 2_000
"""Records of the topic of dead letters that a page is made of: the last ones."""
MAX_LETTER_BYTES: Final = 32 * 1024 * 1024
"""Of these records."""


class DeploymentReader:
    """An Overseer, which reads in threads, because reading blocks. Each look compares with those before it."""

    def __init__(self, settings: LogSettings, stores: StoreSettings, views: ViewRegistry, log: EventLog) -> None:
        self.log = log
        self._generations = Generations(stores.postgres, settings.environment)
        self._looks = DeploymentLooks(Lags(settings, stores, views, self._generations, log), views.views, log)
        self._threads = Threads(2, "deployment")

    async def open(self) -> None:
        """Nothing to do: servers are reached when they are needed."""

    async def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def look(self) -> DeploymentLook:
        """See Overseer; one at a time."""
        return await self._threads.run(self._looks.look)

    async def generations(self, view: str) -> Sequence[Generation]:
        """See Overseer."""
        return await self._threads.run(self._generations.of, view)

    async def rebuilds(self) -> Sequence[RebuildProgress]:
        """See Overseer."""
        return await self._threads.run(self._generations.rebuilds)

    async def letters(self) -> Mapping[str, Letter]:
        """See Overseer."""
        return await self._threads.run(self._letters)

    def _letters(self) -> Mapping[str, Letter]:
        start = max(0, self.log.end(DEAD_LETTERS, 0) - MAX_LETTERS)
        return parts.letters_of(self.log, start=start, max_bytes=MAX_LETTER_BYTES)

    async def trail(self, since: datetime) -> Sequence[AuditRecord]:
        """See Overseer; records of later releases are left out."""
        return await self._threads.run(self._trail, since)

    def _trail(self, since: datetime) -> Sequence[AuditRecord]:
        return last_of_each(each for each in read_trail(self.log, since) if each is not None)


class DeploymentLooks:
    """Looks at a deployment again and again, with the code of `headwater status`."""

    def __init__(self, lags: Looks, views: Mapping[str, View], log: EventLog) -> None:
        self._log = log
        self._views = ViewMetrics(Checks(lags, {name: view.every_s for name, view in views.items()}), log)
        self._letters = LetterMetrics(log)

    def look(self) -> DeploymentLook:
        """See Overseer."""
        found: list[Part] = []
        for what, look in (("partition", self._partitions), ("code", self._code), ("letters", self._new_letters)):
            try:
                found += look()
            except EventLogError as error:
                found.append(Part(what, "all", "unknown", str(error), "log"))
        try:
            self._views.look()
            found += map(parts.view_part, self._views.sample.lags)
        except (EventLogError, ProjectionError) as error:
            fault: Fault = "store" if isinstance(error, ProjectionError) else "log"
            found.append(Part("view", "all", "unknown", str(error), fault))
        return DeploymentLook(found, self._views.sample)

    def _partitions(self) -> Iterator[Part]:
        return parts.partitions(self._log)

    def _code(self) -> Iterator[Part]:
        return parts.hanging_code(self._log)

    def _new_letters(self) -> Iterator[Part]:
        self._letters.look()
        return parts.letters(self._letters.keys)
