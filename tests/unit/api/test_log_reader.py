"""Single records by their position."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

from headwater.api.reads.log import LogReader
from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog.envelope import Position
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import EVENTS


class Noting(MemoryLog):
    """Notes how many reads were begun, and how many came to their end."""

    def __init__(self) -> None:
        super().__init__(1)
        self.begun = self.ended = 0

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        self.begun += 1
        yield from super().read(topic, partition, start, end)
        self.ended += 1


def test_a_read_comes_to_its_end_so_that_its_connection_is_kept() -> None:
    log = Noting()
    for number in range(3):
        log.submit(Entry(EVENTS, f"k{number}", b"{}", 1), 0)

    async def scenario() -> list[Record | None]:
        reader = LogReader(log)
        found = [await reader.record_at(SourcePosition(EVENTS, Position(0, offset))) for offset in (1, 0, 3)]
        reader.close()
        return found

    found = asyncio.run(scenario())
    assert [record and record.key for record in found] == ["k1", "k0", None]
    assert (log.begun, log.ended) == (2, 2)


def test_heartbeats_are_no_events() -> None:
    log = MemoryLog(2)
    for number in range(2):
        log.submit(Entry(EVENTS, heartbeat(number, datetime.now(UTC)).key, b"{}", 1), number)
    log.submit(Entry(EVENTS, "listing/L1/1", b"{}", 1), 1)

    async def scenario() -> list[bool]:
        reader = LogReader(log)
        found = [await reader.hold_events(ends) for ends in ({}, {"0": 1, "1": 1}, {"0": 1, "1": 2})]
        reader.close()
        return found

    assert asyncio.run(scenario()) == [False, False, True]
