"""Which events go into a view: all of them, or those within offsets, times and a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

POSITIONS: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True)
class Point:
    """A place in the log: an offset in each partition, or a time in milliseconds since 1970. text: as it was given."""

    text: str
    offsets: Mapping[int, int] | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, partitions: int) -> Point:
        """`partition:offset,…` with every partition of the log, or an ISO 8601 time (UTC where it names no zone).

        Raises ValueError saying what to write.
        """
        if POSITIONS.fullmatch(text):
            pairs = [tuple(map(int, each.split(":"))) for each in text.split(",")]
            offsets = {partition: offset for partition, offset in pairs}
            missing = sorted(set(range(partitions)) - offsets.keys())
            if missing or len(offsets) != len(pairs) or len(offsets) > partitions:
                raise ValueError(
                    f'"{text}" must name each of the partitions 0 to {partitions - 1} once, for the log has no order '
                    "across partitions; or give a time"
                )
            return cls(text, offsets=offsets)
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f'"{text}" is neither positions ("0:1042,1:977") nor a time ("2026-01-31T12:00:00Z")'
            ) from None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        return cls(text, time_ms=int(time.timestamp() * 1000))


@dataclass(frozen=True)
class Selection:
    """Events from `since` on, up to and including `until`, that fulfil `where`; all of them by default.

    where: Spark SQL over `id, type, stream, sequence, time, partition, offset` and `data.<field>`.
    """

    since: Point | None = None
    until: Point | None = None
    where: str | None = field(default=None)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def ranges(self, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """By partition, the first offset to read and the one after the last, in a log with these ends."""
        first = self.since.offsets if self.since is not None and self.since.offsets else {}
        last = self.until.offsets if self.until is not None and self.until.offsets else None
        found = {}
        for partition, end in ends.items():
            stop = end if last is None else min(end, last[partition] + 1)
            found[partition] = (min(first.get(partition, 0), stop), stop)
        return found

    def __str__(self) -> str:
        parts = [f"from {self.since.text}" if self.since else "", f"until {self.until.text}" if self.until else ""]
        return " ".join(part for part in (*parts, f"where {self.where}" if self.where else "") if part)


ALL: Final = Selection()
