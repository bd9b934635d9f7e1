"""Which generations upkeep records as kept up, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.projections.generations.registry.kept_up import sees_deletions
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.view import View

NOTED_S: Final = 600.0
"""Seconds after which it is recorded again that a generation is kept up."""


@dataclass
class KeptNotes:
    """When it was recorded last that generations are kept up, by view, generation and store; seconds of one clock."""

    _noted: dict[tuple[str, int, str], float] = field(default_factory=dict)

    def due(self, found: Iterable[Lag], views: Mapping[str, View], now: float) -> list[tuple[str, int, str, float]]:
        """What to record: view, generation, store, and the age in seconds of the oldest event that is not applied."""
        made = []
        for each in found:
            if each.standing not in ("caught up", "behind") or each.generation is None or each.read_freshness_s is None:
                continue
            place = (each.view, each.generation, each.store)
            if now - self._noted.get(place, -NOTED_S) >= NOTED_S and sees_deletions(views[each.view]):
                self._noted[place] = now
                made.append((*place, each.read_freshness_s))
        return made
