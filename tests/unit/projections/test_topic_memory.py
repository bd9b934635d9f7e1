"""Rows of a view in a topic are compared without holding those of a partition in memory, and read once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater import Postgres, Topic
from headwater.eventlog.envelope import decode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.store import Ledger, Target, no_fault
from headwater.projections.stores.topic import store as topic_store
from headwater.projections.stores.topic.partition import OwnedPartition
from headwater.projections.stores.topic.records import (
    LEDGER,
    ROW,
    Progress,
    Publications,
    generation_topic,
    progress_to_json,
    public_topic,
    row_to_json,
)
from headwater.projections.stores.topic.store import TopicRows
from headwater.projections.table.layout import DELETED
from tests.contracts.view_histories import BY_GROUP, BY_THING

VIEW = replace(BY_THING, stores=(Postgres(), Topic()))
TARGET = Target(VIEW, 1)
ROWS, ROW_BYTES = 3_000, 5_000
BUDGET_BYTES = 4 * 2**20


class CountingLog(MemoryLog):
    """Notes how many records were read."""

    read_records = 0

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        for record in super().read(topic, partition, start, end):
            self.read_records += 1
            yield record


@pytest.fixture
def log() -> CountingLog:
    """A generation with large rows, one of which is deleted."""
    made = CountingLog(partitions=1)
    for number in range(ROWS):
        state: dict[str, Any] = {"text": f"{number}" + "x" * ROW_BYTES, DELETED: number == 7}
        made.submit(Entry(generation_topic(TARGET), f"{ROW}k{number}", row_to_json(0, state), 1), 0).result()
    made.submit(Entry(generation_topic(TARGET), LEDGER, progress_to_json(Progress(Ledger(0))), 1), 0).result()
    return made


def shown(log: MemoryLog) -> dict[str, str]:
    """The rows of the public topic."""
    last = {record.key: record.value for record in log.read(public_topic(VIEW.name), 0, 0)}
    return {key: decode(value).data["text"] for key, value in last.items() if value is not None}


def taken_over(log: MemoryLog, folder: Path) -> None:
    OwnedPartition(log, Publications(log), TARGET, 0, folder, no_fault).close()


def test_a_swap_compares_a_partition_within_a_budget_of_memory(log: CountingLog, tmp_path: Path) -> None:
    public = public_topic(VIEW.name)
    log.submit(Entry(public, "gone", b"{}", 1), 0).result()
    Publications(log).publish(VIEW.name, 1)
    taken_over(log, tmp_path)
    expected = {f"k{number}": f"{number}" + "x" * ROW_BYTES for number in range(ROWS) if number != 7}
    assert shown(log) == expected
    end = log.end(public, 0)
    Publications(log).publish(VIEW.name, 1)
    tracemalloc.start()
    taken_over(log, tmp_path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < BUDGET_BYTES
    assert log.end(public, 0) == end, "nothing differs"


def test_rows_of_a_topic_are_read_once_however_many_are_asked_for(
    log: CountingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_store, "KafkaLog", lambda _: log)
    rows = TopicRows(StoreSettings(patch_partitions=1, log=LogSettings(state=tmp_path, patch_partitions=1)))
    tracemalloc.start()
    keys = [key for key, _ in rows.rows(TARGET)]
    for first in range(0, ROWS, 100):
        assert len(rows.rows_of(TARGET, keys[first : first + 100])) == 100
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(keys) == ROWS
    assert peak_bytes < BUDGET_BYTES
    assert log.read_records < 2 * ROWS + 200, "once to find the ledger in this log, and once for the rows"
    log.submit(Entry(generation_topic(TARGET), f"{ROW}k1", row_to_json(1, {"text": "new"}), 1), 0).result()
    assert rows.rows_of(TARGET, ["k1", "none"]) == {"k1": {"text": "new"}}
    assert not rows.rows_of(Target(replace(BY_GROUP, stores=VIEW.stores), 1), ["k1"])
