"""What operators see of a deployment: the state of everything, generations, dead letters and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.api.limits import Threads
from headwater.eventlog.audit.trail import AuditRecord, last_of_each, read_trail
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS
from headwater.projections.errors import ProjectionError
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.upkeep.lag import Looks
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.generations.upkeep.view_metrics import LetterMetrics, Sample, ViewMetrics
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
    """What operators see of a deployment, read in threads, because reading blocks.

    Each method raises LogUnavailable or StoreUnavailable.
    """

    def __init__(self, settings: LogSettings, stores: StoreSettings, views: ViewRegistry, log: EventLog) -> None:
        self.log = log
        self._generations = Generations(stores.postgres, settings.environment)
        self._looks = DeploymentLooks(Lags(settings, stores, views, self._generations, log), views.views, log)
        self._threads = Threads(2, "deployment")

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def look(self) -> DeploymentLook:
        """The state of everything; a server that does not answer is one of the problems."""
        return await self._threads.run(self._looks.look)

    async def generations(self, view: str) -> Sequence[Generation]:
        """All generations of a view, the oldest first."""
        return await self._threads.run(self._generations.of, view)

    async def letters(self) -> Mapping[str, Letter]:
        """The last dead letters, by key."""

        def read() -> Mapping[str, Letter]:
            start = max(0, self.log.end(DEAD_LETTERS, 0) - MAX_LETTERS)
            return parts.letters_of(self.log, start=start, max_bytes=MAX_LETTER_BYTES)

        return await self._threads.run(read)

    async def trail(self, since: datetime) -> Sequence[AuditRecord]:
        """The last record of each action of operators since a time, in the order of their beginnings.

        Records of later releases are left out.
        """
        return await self._threads.run(
            lambda: last_of_each(entry for entry in read_trail(self.log, since) if entry is not None)
        )


class DeploymentLooks:
    """Looks at a deployment again and again, with the code of `headwater status`."""

    def __init__(self, lags: Looks, views: Mapping[str, View], log: EventLog) -> None:
        self._log = log
        self._views = ViewMetrics(Checks(lags, {name: view.every_s for name, view in views.items()}), log)
        self._letters = LetterMetrics(log)

    def look(self) -> DeploymentLook:
        """The state of everything."""
        components: list[Part] = []
        looks: tuple[tuple[str, Callable[[], Iterator[Part]]], ...] = (
            ("partition", lambda: parts.partitions(self._log)),
            ("code", lambda: parts.hanging_code(self._log)),
            ("letters", self._new_letters),
        )
        for what, look in looks:
            try:
                components += look()
            except EventLogError as error:
                components.append(Part(what, "all", "unknown", str(error), "log"))
        try:
            self._views.look()
            components += map(parts.view_part, self._views.sample.lags)
        except (EventLogError, ProjectionError) as error:
            fault: Fault = "store" if isinstance(error, ProjectionError) else "log"
            components.append(Part("view", "all", "unknown", str(error), fault))
        return DeploymentLook(components, self._views.sample)

    def _new_letters(self) -> Iterator[Part]:
        self._letters.look()
        return parts.letters(self._letters.keys)


@dataclass(frozen=True)
class DeploymentLook:
    """What one look at a whole deployment has found.

    parts: their states, with what helps. sample: the views in their stores, and the age of their rows.
    """

    parts: Sequence[Part]
    sample: Sample
