"""Which part of the read side has stood still for so long that it is restarted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from projections.generations.lag import Lag
from projections.parts import LIVE, Parts

RESTART_LOOKS: Final = 6
"""So many looks in a row without a movement: where a batch ends, or a store is slow, it is one or two."""
MAX_LOOKS: Final = 360
"""Between two restarts of a part that no restart helps; the number doubles from one to the next."""


@dataclass
class Stalls:
    """What was stalled in the looks so far."""

    _ends: Mapping[int, int] = field(default_factory=dict)
    _patches: dict[tuple[str, str], int] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)
    _needed: dict[str, int] = field(default_factory=dict)

    def due(self, lags: Iterable[Lag], ends: Mapping[int, int], parts: Parts) -> dict[str, Lag]:
        """Take in one look, and return the parts to restart now, each with a view that it holds up.

        ends: of each partition of `events`. The looks of a part that is starting do not count.
        """
        held: dict[str, Lag] = {}
        for lag in lags:
            if self._is_held(lag, ends):
                held.setdefault(lag.store if lag.lag_patches else LIVE, lag)
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
        """How many looks of standing still in a row it takes until a part is restarted."""
        return self._needed.get(part, RESTART_LOOKS)

    def _is_held(self, lag: Lag, ends: Mapping[int, int]) -> bool:
        """Whether something waits and nothing is done, for certain.

        Where the owners of partitions are away, there are no heartbeats, and the end of the log may be the mark of a
        transaction, which no position ever reaches. And a loader may read much that is not for this view.
        """
        if lag.standing != "stalled":
            return False
        waits = any(lag.position.get(each, 0) < self._ends.get(each, end) < end for each, end in ends.items())
        reads = (lag.lag_patches or 0) < self._patches.get((lag.view, lag.store), 0)
        return bool(lag.lag_events or waits) and not reads
