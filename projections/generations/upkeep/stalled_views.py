"""Distinguishes stalled views from those that are only behind, over several checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.running_parts import LIVE

STALLED_S: Final = 10.0
"""A view that is behind and makes no progress for this long, while heartbeats come every 5 seconds, is stalled."""


@dataclass
class Moves:
    """What the checks so far have seen of each view.

    undecided: those, with their stores, that were behind at their first check and have not made progress since.
    """

    undecided: set[tuple[str, str]] = field(default_factory=set)
    _moved: dict[tuple[str, str], tuple[Lag, Mapping[str, int], float]] = field(default_factory=dict)
    """By view and store: its state when it last made progress or had nothing to do, the ends of the log then, and the
    time."""

    def judged(
        self, found: Iterable[Lag], ends: Mapping[str, int], at: float, every_s: Mapping[str, float]
    ) -> list[Lag]:
        """One more check, in which a view without progress for STALLED_S and its own pause is stalled.

        A view that was rebuilt meanwhile is ahead of the live query, and waits until the others have come to where it
        is: as long as they make progress, it is not stalled.

        ends: of each source. at: seconds of one clock. every_s: by view, the seconds between two batches of its own
        query.
        """
        judged = {(each.view, each.store): (each, self._judged(each, ends, at, every_s[each.view])) for each in found}
        self.undecided &= judged.keys()
        moving = [self._moved[key][0] for key in judged if at - self._moved[key][2] < STALLED_S]
        return [each if _is_ahead(now, moving) else now for each, now in judged.values()]

    def _judged(self, lag: Lag, ends: Mapping[str, int], at: float, every_s: float) -> Lag:
        key = lag.view, lag.store
        if (before := self._moved.get(key)) is None:
            if lag.standing == "behind":
                self.undecided.add(key)
        else:
            then, ends_then, since = before
            judged = lag.since(then, ends_then)
            is_stalled = judged.standing == "stalled"
            if is_stalled and at - since < STALLED_S + every_s:
                return lag
            self.undecided.discard(key)
            if is_stalled:
                return judged
        self._moved[key] = lag, ends, at
        return lag


def _is_ahead(lag: Lag, moving: Iterable[Lag]) -> bool:
    """Whether it is stalled only because it has what others, which the same parts bring up to date, still have to get.

    moving: those that made progress a moment ago. One that has passed it somewhere says that it was left behind.
    """
    if lag.standing != "stalled" or lag.query != LIVE:
        return False
    beside = [each.position for each in moving if each.store == lag.store and each.query == LIVE]
    differences = [
        [at - lag.position[source] for source, at in each.items() if source in lag.position] for each in beside
    ]
    return any(min(each, default=0) < 0 and max(each) <= 0 for each in differences)
