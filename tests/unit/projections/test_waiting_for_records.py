"""The process of stream views starts Spark when a source has a record, and asks little until then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.queries import have_records
from headwater.samples.listings.views import hourly_views


class Asked(MemoryLog):
    """Notes how often the ends of a topic are asked for."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.asked = list[str]()

    def end(self, topic: str, partition: int) -> int:
        self.asked.append(f"{topic}/{partition}")
        return super().end(topic, partition)

    def stored_ends(self, topic: str) -> Mapping[int, int]:
        self.asked.append(topic)
        return super().stored_ends(topic)


def test_without_records_there_is_one_question_per_topic() -> None:
    log, settings = Asked(partitions=4), LogSettings(partitions=4)
    assert not have_records(log, [hourly_views], settings)
    assert log.asked == [OBSERVATIONS]


def test_a_heartbeat_is_no_record_and_an_observation_is_one() -> None:
    log, settings = MemoryLog(partitions=4), LogSettings(partitions=4)
    beat = heartbeat(1, datetime.now(UTC))
    log.submit(Entry(OBSERVATIONS, beat.key, beat.value, beat.timestamp_ms), 1)
    assert not have_records(log, [hourly_views], settings)
    log.submit(Entry(OBSERVATIONS, "listing_viewed/site/v1@1", b"{}", 1), 2)
    assert have_records(log, [hourly_views], settings)
