"""How long receipts are kept on a disk: by time that has passed, whatever the clock says and the setting was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import orjson

DAY_MS = 24 * 60 * 60 * 1000
MAX_STEP_MS = DAY_MS // 4
"""What one look at the clock may add. The clock is looked at every second, so a longer step is a clock that was set."""
MARGIN_MS = 2 * DAY_MS
"""Kept beyond what is promised: eight clocks that were set forward. The topic `receipts` keeps as much more."""


@dataclass(slots=True)
class Periods:
    """Numbered periods, the latest of which takes what is new; an old one is forgotten as a whole.

    Time is counted in `age_ms`, which grows with the clock: in steps of MAX_STEP_MS at most, and never back. So
    neither a clock that jumps nor another length makes what was just given look old, and time in which nobody ran
    counts for little. A period is forgotten `length_ms` and a margin after the next one began.

    begun: number and age at the beginning of each period that is kept, in order; there is at least one.
    """

    age_ms: int = 0
    time_ms: int = 0
    begun: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def numbers(self) -> list[int]:
        """The periods that are kept, the latest first."""
        return [number for number, _ in reversed(self.begun)]

    def advance(self, time_ms: int, length_ms: int) -> bool:
        """Let the time be `time_ms`, since 1970; returns whether a period began or was forgotten."""
        if self.time_ms:
            self.age_ms += min(max(0, time_ms - self.time_ms), MAX_STEP_MS)
        self.time_ms = time_ms
        changed = False
        number, since_ms = self.begun[-1]
        if self.age_ms - since_ms >= length_ms:
            self.begun.append((number + 1, self.age_ms))
            changed = True
        while len(self.begun) > 1 and self.age_ms - self.begun[1][1] >= length_ms + MARGIN_MS:
            del self.begun[0]
            changed = True
        return changed

    def to_json(self) -> bytes:
        """What `from_json` reads."""
        return orjson.dumps({"age_ms": self.age_ms, "time_ms": self.time_ms, "begun": self.begun})

    @classmethod
    def from_json(cls, value: bytes | None) -> Self:
        """The periods that were written; new ones where there are none."""
        if value is None:
            return cls()
        document = orjson.loads(value)
        return cls(document["age_ms"], document["time_ms"], [(number, age) for number, age in document["begun"]])
