"""Decides which part of the read side has made no progress for so long that it is restarted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.running_parts import STREAMS, RunningParts

RESTART_LOOKS: Final = 6
"""This many checks in a row without progress: at the end of a batch, or with a slow store, it is one or two."""
RESTART_STREAMS_LOOKS: Final = 60
"""For stream views: a batch reads all that there is, so after a stop the first one may take minutes."""
MAX_LOOKS: Final = 360
"""Time between two restarts of a part; it doubles from one restart to the next."""


@dataclass
class Stalls:
    """What was stalled in the checks so far."""

    _ends: Mapping[str, int] = field(default_factory=dict)
    _patches: dict[tuple[str, str], int] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)
    _needed: dict[str, int] = field(default_factory=dict)

    def due(self, lags: Sequence[Lag], ends: Mapping[str, int], parts: RunningParts) -> dict[str, Lag]:
        """Add one check, and return the parts to restart now, each with a view that it blocks.

        ends: of each source. Checks of a part that is starting do not count. The process of stream views itself starts
        a query again that fails. A restart would stop the queries of the other views, so it is due only if all fail,
        for example because Spark has stopped.
        """
        held: dict[str, Lag] = {}
        some_work = any(lag.query == STREAMS and not _has_failed(lag) for lag in lags)
        for lag in lags:
            if self._is_held(lag, ends) and not (some_work and _has_failed(lag)):
                held.setdefault(lag.store if lag.lag_patches else lag.query, lag)
            self._patches[lag.view, lag.store] = lag.lag_patches or 0
        self._ends = dict(ends)
        for part in self._looks.keys() - held.keys():
            del self._looks[part]
            self._needed.pop(part, None)
        for part in held:
            self._looks[part] = self._looks.get(part, 0) + 1 if parts.is_up(part) else 0
        due = {part: lag for part, lag in held.items() if self._looks[part] >= self.looks_needed(part)}
        for part in due:
            self._looks[part], self._needed[part] = 0, min(MAX_LOOKS, 2 * self.looks_needed(part))
        return due

    def looks_needed(self, part: str) -> int:
        """The number of consecutive checks without progress until a part is restarted."""
        return self._needed.get(part, RESTART_STREAMS_LOOKS if part == STREAMS else RESTART_LOOKS)

    def _is_held(self, lag: Lag, ends: Mapping[str, int]) -> bool:
        """Whether there is work and certainly nothing is done.

        If the owners of partitions do not run, there are no heartbeats, and the end of the log may be a transaction
        marker, which no position reaches. And a loader may read many patches of other views.
        """
        if lag.standing != "stalled":
            return False
        known = {each: at for each, at in lag.position.items() if each in ends}
        waits = any(at < self._ends.get(each, ends[each]) < ends[each] for each, at in known.items())
        reads = (lag.lag_patches or 0) < self._patches.get((lag.view, lag.store), 0)
        return bool(lag.lag_events or waits) and not reads


def _has_failed(lag: Lag) -> bool:
    """Whether it is a stream view whose query has failed, and has made nothing since."""
    return lag.stream is not None and bool(lag.stream.failure)
