"""Pages of the events of all streams: what selects them, and what one has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headwater.eventlog.envelope import HEARTBEAT, Envelope, Position


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events: of these types (empty: all), at `since` or later, before `until`.

    correlation_id: of which they are; None: of any.
    """

    types: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    correlation_id: str | None = None

    def takes(self, event: Envelope) -> bool:
        """Whether it is selected."""
        return (
            event.type != HEARTBEAT
            and (not self.types or event.type in self.types)
            and (self.since is None or event.time >= self.since)
            and (self.until is None or event.time < self.until)
            and (self.correlation_id is None or event.correlation_id == self.correlation_id)
        )


@dataclass(slots=True)
class AuditPage:
    """Some events with their positions; where to continue, by partition; and whether the end of the log was reached.

    unreadable: positions of records that are not valid events.
    """

    events: list[tuple[Position, bytes]] = field(default_factory=list)
    unreadable: list[Position] = field(default_factory=list)
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    ended: bool = False
