"""The parts of the read side: the live query, the queries of stream views, and the loaders of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headwater.eventlog.settings import LogSettings
from headwater.projections.supervision.process import State
from headwater.projections.supervision.supervised import Supervisor

LIVE: Final = "live"
STREAMS: Final = "streams"
EVERYTHING: Final = "projections"
REPLAYING: Final = "replaying"
LIVE_START_S: Final = 300.0
LIVE_HELD_BY: Final = "HEADWATER_LIVE_HELD_BY"
"""Names a file; while it exists, the live query does not start, because a replay may move its starting offsets."""


class RunningParts(Protocol):
    """The parts that can run here: the live query is LIVE, the queries of stream views are STREAMS, and the
    loaders of a store have its name.
    """

    def is_up(self, part: str) -> bool:
        """Whether the part runs and has started; False as well if it does not run here."""

    def restart(self, part: str) -> None:
        """Begin to restart the part; returns immediately."""


class NoParts:
    """No part runs here."""

    def is_up(self, part: str) -> bool:
        return False

    def restart(self, part: str) -> None:
        """There is nothing to restart."""


@dataclass(frozen=True)
class SupervisedParts:
    """The parts that this process supervises. names: of their processes, by part."""

    names: Mapping[str, Sequence[str]]
    supervisor: Supervisor

    def is_up(self, part: str) -> bool:
        """See RunningParts."""
        return all(self.supervisor[name].status.state is State.HEALTHY for name in self.names[part])

    def restart(self, part: str) -> None:
        """See RunningParts."""
        for name in self.names[part]:
            self.supervisor[name].begin_restart()


def ready_file(settings: LogSettings, part: str) -> Path:
    """The file that exists while `part` of this deployment is ready (EVERYTHING: all are), or at work (REPLAYING)."""
    folder = settings.state.absolute() / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.environment}.{part}"
