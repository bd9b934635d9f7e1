"""A small line of numbers over time, as the points of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.api.console.looks import EVERY_S, KEPT_S

WIDTH: Final = 160
DOT: Final = 2
"""The radius of the last point, which must be inside."""
HEIGHT: Final = 24
LEAST_TOP_S: Final = 10.0
"""The top of the line at least: ages of up to 5 s are those of heartbeats, and should look like nothing."""
GAP_S: Final = 3 * EVERY_S
"""Without a look for so long, the line has a gap: nobody looked, because no page was open."""


@dataclass(frozen=True)
class Sparkline:
    """lines: each as the points of a polyline. end: the last point. now_s, highest_s: for who cannot see it."""

    lines: Sequence[str]
    end: tuple[str, str]
    now_s: float
    highest_s: float

    @property
    def text(self) -> str:
        """What it shows, in words."""
        return f"age of the rows in the last 15 minutes: {self.now_s:.1f} s now, {self.highest_s:.1f} s at most"


def sparkline(points: Sequence[tuple[float, float]], at_s: float) -> Sparkline | None:
    """The line of (time, age) up to a time, in seconds; None without points."""
    if not points:
        return None
    highest_s = max(age for _, age in points)
    top_s = max(LEAST_TOP_S, highest_s)
    lines: list[list[str]] = []
    before_s: float | None = None
    for time_s, age in points:
        if before_s is None or time_s - before_s > GAP_S:
            lines.append([])
        x = (WIDTH - DOT) * (1 - (at_s - time_s) / KEPT_S)
        lines[-1].append(f"{x:.1f},{(HEIGHT - 2 * DOT) * (1 - age / top_s) + DOT:.1f}")
        before_s = time_s
    x_text, _, y_text = lines[-1][-1].partition(",")
    return Sparkline([" ".join(line) for line in lines], (x_text, y_text), points[-1][1], highest_s)
