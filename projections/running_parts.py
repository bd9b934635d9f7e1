"""The parts of the read side: the live query, the queries of stream views, and the loaders of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


@dataclass(frozen=True)
class RunningParts:
    """The parts that this process supervises: the live query is LIVE, the queries of stream views are STREAMS, and the
    loaders of a store have its name. names: of their processes, by part.
    """

    names: Mapping[str, Sequence[str]]
    supervisor: Supervisor

    def is_up(self, part: str) -> bool:
        """Whether the part runs and has started; False as well if it does not run here."""
        names = self.names.get(part, ())
        return bool(names) and all(self.supervisor[name].status.state is State.HEALTHY for name in names)

    def restart(self, part: str) -> None:
        """Begin to restart the part, if it runs here; returns immediately."""
        for name in self.names.get(part, ()):
            self.supervisor[name].begin_restart()


NO_PARTS: Final = RunningParts({}, Supervisor(()))


def ready_file(settings: LogSettings, part: str) -> Path:
    """The file that exists while `part` of this deployment is ready (EVERYTHING: all are), or at work (REPLAYING)."""
    folder = settings.state.absolute() / "ready"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.environment}.{part}"
