"""Selects the events of a view: all of them, or those within offsets and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headwater.eventlog.source_positions import source_id, sources_of
from headwater.eventlog.times import read_time
from headwater.eventlog.topics import EVENTS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
POSITIONS: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True)
class Point:
    """A point in the log: an offset per source, or a time in milliseconds since 1970. text: as it was given."""

    text: str
    offsets: Mapping[str, int] | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, partitions: int) -> Point:
        """`partition:offset,…` with every partition of the log, or an RFC 3339 time with its zone.

        Raises ValueError with the expected form.
        """
        if POSITIONS.fullmatch(text):
            pairs = [tuple(map(int, each.split(":"))) for each in text.split(",")]
            offsets = {source_id(EVENTS, partition): offset for partition, offset in pairs}
            missing = set(sources_of(EVENTS, partitions)) - offsets.keys()
            if missing or len(offsets) != len(pairs) or len(offsets) > partitions:
                raise ValueError(
                    f'"{text}" must name each of the partitions 0 to {partitions - 1} once, because the log has no '
                    "order across partitions; or give a time"
                )
            return cls(text, offsets=offsets)
        try:
            time = read_time(text)
        except ValueError as error:
            raise ValueError(f'{error}; or positions, such as "0:1042,1:977"') from error
        # up to the next millisecond: records have whole milliseconds, and both ends of a range are rounded the same way
        return cls(text, time_ms=-((EPOCH - time) // MILLISECOND))


@dataclass(frozen=True)
class Selection:
    """Events from `since` on, before `until`; all by default.

    So a selection that ends at a point and one that begins there have every event once together.
    """

    since: Point | None = None
    until: Point | None = None

    @property
    def is_all(self) -> bool:
        """Whether it selects all events."""
        return self == Selection()

    def ranges(self, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """By source, the first offset to read and the one after the last, in a log with these ends."""
        first = self.since.offsets if self.since is not None and self.since.offsets else {}
        last = self.until.offsets if self.until is not None and self.until.offsets else None
        found = {}
        for source, end in ends.items():
            stop = end if last is None else min(end, last.get(source, end))
            found[source] = (min(first.get(source, 0), stop), stop)
        return found

    def __str__(self) -> str:
        parts = [f"from {self.since.text}" if self.since else "", f"until {self.until.text}" if self.until else ""]
        return " ".join(filter(None, parts))


ALL: Final = Selection()
