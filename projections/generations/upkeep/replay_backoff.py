"""Which views upkeep has replayed in vain, and how long it waits before the next replay of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.projections.generations.upkeep.lag import Lag

PAUSE_S: Final = 60.0
"""After the second replay in a row; it doubles from one replay to the next."""
MAX_PAUSE_S: Final = 3600.0
SETTLED_S: Final = 600.0
"""A view that needs no replay for so long after one was helped by it."""


@dataclass
class _Replayed:
    in_a_row: int
    until: float


@dataclass
class Repeats:
    """Replays that followed one another. Times are seconds of one clock."""

    _views: dict[str, _Replayed] = field(default_factory=dict)

    def may_replay(self, view: str, now: float) -> bool:
        """Whether its pause is over."""
        return view not in self._views or now >= self._views[view].until

    def note(self, view: str, now: float) -> tuple[int, float]:
        """Note that a view has been replayed; returns how often in a row, and the seconds until it may be again."""
        before = self._views.get(view)
        in_a_row = 1 if before is None or now > before.until + SETTLED_S else before.in_a_row + 1
        pause_s = min(MAX_PAUSE_S, PAUSE_S * 2 ** (in_a_row - 2)) if in_a_row > 1 else 0.0
        self._views[view] = _Replayed(in_a_row, now + pause_s)
        return in_a_row, pause_s

    def forget_helped(self, found: Iterable[Lag]) -> None:
        """Forget the replays of views that are caught up in all their stores."""
        behind, every = set[str](), set[str]()
        for lag in found:
            every.add(lag.view)
            if lag.standing != "caught up":
                behind.add(lag.view)
        for view in every - behind:
            self._views.pop(view, None)
