"""How long receipts are kept on disk: by elapsed time, independent of clock changes and changed settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import orjson

DAY_MS = 24 * 60 * 60 * 1000
MAX_STEP_MS = DAY_MS // 4
"""The most that one reading of the clock may add. It is read every second, so a longer step is a changed clock."""
MARGIN_MS = 2 * DAY_MS
"""Added to the promised time; it covers eight forward changes of the clock. The topic `receipts` has it too."""


@dataclass(slots=True)
class Periods:
    """Numbered periods; new receipts belong to the latest one, and an old period is deleted as a whole.

    Time is counted in `age_ms`, which grows with the clock by at most MAX_STEP_MS per step, and never decreases. So
    neither a clock that jumps nor a changed setting makes new receipts look old, and time without a running process
    counts little. A period is deleted `length_ms` plus a margin after the next period began.

    begun: number and age at the beginning of each kept period, in order; there is at least one.
    """

    age_ms: int = 0
    time_ms: int = 0
    begun: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def numbers(self) -> list[int]:
        """The kept periods, the latest first."""
        return [number for number, _ in reversed(self.begun)]

    def advance(self, time_ms: int, length_ms: int) -> bool:
        """Set the time to `time_ms`, since 1970; returns whether a period began or was deleted."""
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
        """The input of `from_json`."""
        return orjson.dumps({"age_ms": self.age_ms, "time_ms": self.time_ms, "begun": self.begun})

    @classmethod
    def from_json(cls, value: bytes | None) -> Self:
        """The stored periods; new ones if there are none."""
        if value is None:
            return cls()
        document = orjson.loads(value)
        return cls(document["age_ms"], document["time_ms"], [(number, age) for number, age in document["begun"]])
