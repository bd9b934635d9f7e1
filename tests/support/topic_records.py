"""Records of topics as tests name them, and what a view makes of one."""

from __future__ import annotations

from typing import NamedTuple

from headwater.eventlog.letters import Letter as DeadLetter
from headwater.projections.reading.reader import LogRecord, patches_of
from headwater.projections.reading.records import Letter
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView


class TopicRecord(NamedTuple):
    """A record of a source: `3`, or `topic/3`."""

    source: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def message(self) -> LogRecord:
        """As Kafka's client has it."""
        return LogRecord(*self[1:])


def patches_in(view: TableView, record: TopicRecord) -> list[Patch]:
    """The patches of a record; raises Unreadable."""
    return patches_of(view, record.source, record.message)


def reason_of(letter: Letter) -> str:
    """Why its record cannot be read."""
    return DeadLetter.from_json(letter.text).reason
