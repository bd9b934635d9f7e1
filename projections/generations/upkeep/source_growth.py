"""How large the sources of views are, and how fast they grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Arrivals:
    """The ends of all sources as of the last look, and their growth since the one before."""

    _ends: Mapping[str, int] = field(default_factory=dict)
    _at: float = 0.0
    _per_s: dict[str, float] = field(default_factory=dict)

    def note(self, ends: Mapping[str, int], at: float) -> None:
        """Note the ends of all sources; at: seconds of one clock."""
        seconds = at - self._at
        if self._ends and seconds > 0:
            self._per_s = {each: max(0, end - self._ends.get(each, end)) / seconds for each, end in ends.items()}
        self._ends, self._at = ends, at

    def size(self, sources: Iterable[str]) -> int:
        """The number of offsets of these sources."""
        return sum(self._ends.get(each, 0) for each in sources)

    def per_s(self, sources: Iterable[str]) -> float:
        """Offsets per second that were added to these sources; 0 if they were looked at once."""
        return sum(self._per_s.get(each, 0.0) for each in sources)
