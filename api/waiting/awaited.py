"""What a request waits for before its answer is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from headwater.api.limits import Limits
from headwater.api.reading import Applied, Live
from headwater.api.requests.parameters import read_integer
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.ports import Record
from headwater.eventlog.source_positions import SourcePosition, topic_and_partition
from headwater.projections.table.changes import NotAChange, key_columns, key_text, view_key
from headwater.projections.table.patch import Place
from headwater.projections.table.rows import RowClass

FIRST_PAUSE_S: Final = 0.002
MAX_PAUSE_S: Final = 0.020
NOWHERE: Final = Place(-1, 0)


@dataclass(frozen=True, slots=True)
class After:
    """The positions that a request waits for, and the time limit, for all views of its answer."""

    token: str
    wait_ms: int
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, plain: Mapping[str, str], limits: Limits) -> After | None:
        """`after=` and `wait_ms=`, None if there is nothing to wait for; raises BadParameter."""
        wait_ms = read_integer("wait_ms", plain.get("wait_ms", str(limits.wait_ms)), 0, limits.max_wait_ms)
        return cls(plain["after"], wait_ms) if "after" in plain else None

    async def pause(self, poll: int) -> bool:
        """Pause after this poll, from 0: longer and longer, but not beyond the time limit; False if the time is up."""
        left_s = self.left_s
        if left_s <= 0:
            return False
        await asyncio.sleep(min(pause_s(poll + 1), left_s))
        return True

    @property
    def left_s(self) -> float:
        """How long the request may still wait; negative if its time is up."""
        return self.began + self.wait_ms / 1000 - time.monotonic()


def pause_s(poll: int) -> float:
    """How long to wait before this poll, from 0, which is at once."""
    return min(FIRST_PAUSE_S * 1.5 ** min(poll - 1, 20), MAX_PAUSE_S) if poll else 0.0


@dataclass(frozen=True, slots=True)
class Awaited:
    """A place that a view must have applied.

    key: of the row that it changes, None if unknown. number: of the last patch of its event for that row.
    includes_earlier: it stands for earlier places too: for all of the same partition of `patches`, or of all partitions
    if there is no key. A row's guard is not enough then.
    """

    place: SourcePosition
    key: str | None
    number: int = 0
    includes_earlier: bool = False

    def applied(self, applied: Applied) -> bool:
        """Whether the applied places include it."""
        return applied.get(self.place.source, NOWHERE) >= (self.offset, self.number)

    @property
    def offset(self) -> int:
        """In its source."""
        return self.place.position.offset

    @property
    def is_guarded(self) -> bool:
        """Whether the guard of a row can say that it is applied."""
        return self.key is not None and not self.includes_earlier

    @property
    def is_unknown(self) -> bool:
        """Whether the record, and so the row, may still be found."""
        return self.key is None and not self.includes_earlier


def first_unapplied(live: Live, ledger: Mapping[int, Applied], source: str, patch_partitions: int) -> int:
    """The offset in a source below which every partition of `patches` was applied."""
    slowest = min(ledger.get(each, {}).get(source, NOWHERE) for each in range(patch_partitions))
    return max(slowest.offset + 1, live.bulk_ends.get(source, 0))


def row_key(table: RowClass, record: Record) -> str | None:
    """The key of the row that a record of a captured table, or of a view, is about; None if it is about none, as a
    heartbeat."""
    if is_heartbeat_key(record.key, table.topic()):
        return None
    key = record.key.encode(errors="surrogateescape")
    try:
        return view_key(key) if issubclass(table, ViewRow) else key_text(key_columns(table), key)
    except NotAChange:
        return None


def place_before(source: str, end: int) -> SourcePosition:
    """The last place in a source before this offset."""
    topic, partition = topic_and_partition(source)
    return SourcePosition(topic, Position(partition, end - 1))


class EventReader(Protocol):
    """Single events by their position."""

    async def event_at(self, position: Position) -> Envelope | None:
        """The event at `position`; None if there is none (not yet, or it was compacted)."""

    async def record_at(self, place: SourcePosition) -> Record | None:
        """The record at this place of any source; None if there is none."""

    async def ends(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The offset after the last record of each source in these topics; raises LogUnavailable."""

    async def hold_events(self, ends: Mapping[str, int]) -> bool:
        """Whether sources have other records than heartbeats before these offsets; raises LogUnavailable."""

    async def slow_code(self) -> Sequence[str]:
        """What handlers report of code that does not return, one line each; raises LogUnavailable."""
