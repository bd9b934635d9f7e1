"""Positions in the sources of views: of an event `3:1042`, of an observation `observations/3:1042`."""

from __future__ import annotations

from dataclasses import dataclass

from eventlog.envelope import Position
from eventlog.topics import OBSERVATIONS

EVENTS = ""
SOURCES = (EVENTS, OBSERVATIONS)


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """A position in a source. Its source id is text: a partition of `events`, or `<source>/<partition>`."""

    source: str
    position: Position

    def __str__(self) -> str:
        return f"{self.source}/{self.position}" if self.source else str(self.position)

    @classmethod
    def parse(cls, text: str) -> SourcePosition:
        """Read `3:1042` or `observations/3:1042`; raises ValueError with the expected form."""
        source, slash, place = text.rpartition("/")
        if slash and source not in SOURCES[1:]:
            raise ValueError(
                f'"{text[:64]}" has an unknown source: write "3:1042" for an event, '
                f'"{OBSERVATIONS}/3:1042" for an observation'
            )
        return cls(source, Position.parse(place))
