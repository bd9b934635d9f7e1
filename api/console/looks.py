"""One look at the deployment for all open pages, and what the last quarter of an hour of looks has found."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.api.ports import DeploymentLook, Overseer

EVERY_S: Final = 5.0
"""Between two looks while a page is open: owners of partitions append heartbeats every 5 s."""
KEPT_S: Final = 15 * 60
MAX_POINTS: Final = int(KEPT_S / EVERY_S)
"""Of each view in each store."""

RATE_S: Final = 30.0
"""A rate is told if the look before is no older."""

Place = tuple[str, str]
"""A view and a store."""


@dataclass(frozen=True)
class Seen:
    """A look, with those before it.

    taken_s: by the clock. ages: of each view in each store, points of `Ages`. rates: offsets of the log that each view
    has applied per second since the look before; those that were not in both, or had another generation, are left out.
    """

    look: DeploymentLook
    taken_s: float
    ages: Mapping[Place, Sequence[tuple[float, float]]]
    rates: Mapping[Place, float] = field(default_factory=dict)

    def rates_until(self, look: DeploymentLook, at_s: float) -> dict[Place, float]:
        """What was applied per second from this look until the next one; nothing if too much time is between them."""
        seconds = at_s - self.taken_s
        if not 0 < seconds <= RATE_S:
            return {}
        before = {(lag.view, lag.store, lag.generation): lag for lag in self.look.sample.lags}
        found = {}
        for lag in look.sample.lags:
            earlier = before.get((lag.view, lag.store, lag.generation))
            if earlier is not None and earlier.position.keys() == lag.position.keys():
                applied = sum(lag.position.values()) - sum(earlier.position.values())
                found[lag.view, lag.store] = max(0, applied) / seconds
        return found


@dataclass
class Ages:
    """How old rows were: by view and store, (time, age) in seconds, of at most KEPT_S."""

    points: dict[Place, deque[tuple[float, float]]] = field(default_factory=dict)

    def add(self, look: DeploymentLook, at_s: float) -> None:
        """Add what a look has found, and forget views that are gone and what is too old."""
        sample = look.sample
        there = {(lag.view, lag.store) for lag in sample.lags}
        self.points = {place: points for place, points in self.points.items() if place in there}
        for place in there & sample.applied_ms.keys():
            points = self.points.setdefault(place, deque(maxlen=MAX_POINTS))
            points.append((at_s, age_s(sample.at_ms, sample.applied_ms[place])))
            while points[0][0] < at_s - KEPT_S:
                points.popleft()


def age_s(at_ms: int, applied_ms: int) -> float:
    """How old rows are that have everything up to a time."""
    return max(0.0, (at_ms - applied_ms) / 1000)


class SharedLook:
    """Takes a look when somebody needs one, at most one every EVERY_S: without an open page, it does nothing."""

    def __init__(self, overseer: Callable[[], Overseer], clock: Callable[[], float] = time.monotonic) -> None:
        """overseer: looks. clock: returns the time in seconds."""
        self._overseer, self._clock, self._ages = overseer, clock, Ages()
        self._last: Seen | None = None
        self._taking: asyncio.Task[Seen] | None = None

    async def current(self) -> Seen:
        """A look that is at most EVERY_S old; whoever asks meanwhile waits for the same one."""
        if self._last is not None and self._clock() - self._last.taken_s < EVERY_S:
            return self._last
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        return await asyncio.shield(self._taking)

    async def _take(self) -> Seen:
        look = await self._overseer().look()
        at_s = self._clock()
        self._ages.add(look, at_s)
        rates = {} if self._last is None else self._last.rates_until(look, at_s)
        self._last = Seen(look, at_s, {place: tuple(points) for place, points in self._ages.points.items()}, rates)
        return self._last
