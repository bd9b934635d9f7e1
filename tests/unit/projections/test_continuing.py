"""Whether a query can continue with the state on this machine, or has lost it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, why_lost
from headwater.projections.stores.ledgers import initial_ledger
from headwater.projections.stores.store import Ledger, Target
from tests.support.checkpoints import begin_batch, disk, end_batch
from tests.support.observed import gate_view

GATES = Target(gate_view(), 1)
DAMAGED = "cannot be read: headwater.json is damaged or missing"
OLDER = "is older than its rows"


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    return LogSettings(state=tmp_path, partitions=2)


def ledgers(*reached: Mapping[str, int]) -> dict[int, Ledger]:
    """Those of a store: how far it is, from each partition of `patches`."""
    return {partition: initial_ledger(each, 0) for partition, each in enumerate(reached)}


def both(first: int, second: int = 9) -> dict[str, int]:
    return {"observations/0": first, "observations/1": second}


@pytest.mark.parametrize(("stores", "lost"), [
    # batch 91 has begun, and its progress may have been sent
    ([ledgers(both(50), both(50))], None),
    ([ledgers(both(0, 0), both(50)), ledgers(both(40), both(40))], None),
    ([ledgers({}, {}), {}], None),
    # one place that has rows of later batches is enough
    ([ledgers(both(51), both(51))], OLDER),
    ([ledgers(both(40), both(51))], OLDER),
    ([ledgers(both(50, 10), both(50))], OLDER),
    ([ledgers(both(40), both(40)), ledgers(both(51), both(40))], OLDER),
])  # fmt: skip
def test_a_state_that_is_older_than_the_rows_of_any_store_is_lost(
    settings: LogSettings, stores: list[dict[int, Ledger]], lost: str | None
) -> None:
    checkpoint = Checkpoint.of(settings, GATES.tag)
    begin_batch(checkpoint, 90, {"0": 30, "1": 9})
    begin_batch(checkpoint, 91, {"0": 50, "1": 9})
    assert why_lost(GATES, stores, settings, MemoryLog()) == lost


def test_without_a_checkpoint_no_store_is_asked(settings: LogSettings) -> None:
    assert why_lost(GATES, (pytest.fail("asked") for _ in "1"), settings, MemoryLog()) == "is not on this machine"


@pytest.mark.parametrize("left", ["", "\0\0\0\0", 'v1\n{}\n{"headwater.observations":{"0":', "v1\n{}\n{"])
def test_what_a_power_failure_left_of_the_last_file_is_lost(settings: LogSettings, left: str) -> None:
    checkpoint = Checkpoint.of(settings, GATES.tag)
    begin_batch(checkpoint, 90, {"0": 30, "1": 9})
    (disk(checkpoint) / "offsets" / "91").write_text(left)
    lost = why_lost(GATES, [ledgers(both(30))], settings, MemoryLog())
    assert lost is not None
    assert lost.startswith("cannot be read")


def three_batches(settings: LogSettings) -> Checkpoint:
    """The third one has not ended."""
    checkpoint = Checkpoint.of(settings, GATES.tag)
    for batch in (0, 1, 2):
        begin_batch(checkpoint, batch, {"0": 30, "1": 9})
        if batch < 2:
            end_batch(checkpoint, batch, "0/0", "0/1", "1/0/left-keyWithIndexToValue")
    return checkpoint


@pytest.mark.parametrize("file", [
    "metadata", "offsets/2", "offsets/1", "commits/1", "commits/0",
    "state/0/1/2.changelog", "state/1/0/left-keyWithIndexToValue/2.changelog", "state/0/0/_metadata/schema",
])  # fmt: skip
def test_a_file_that_a_power_failure_emptied_is_named(settings: LogSettings, file: str) -> None:
    checkpoint = three_batches(settings)
    assert why_lost(GATES, [], settings, MemoryLog()) is None
    (disk(checkpoint) / file).write_text("")
    assert why_lost(GATES, [], settings, MemoryLog()) == f"cannot be read: {file} is damaged or missing"


@pytest.mark.parametrize("file", ["metadata", "state/0/1/2.changelog"])
def test_a_file_that_is_missing_is_named(settings: LogSettings, file: str) -> None:
    (disk(three_batches(settings)) / file).unlink()
    assert why_lost(GATES, [], settings, MemoryLog()) == f"cannot be read: {file} is damaged or missing"


def test_what_no_start_reads_may_be_damaged(settings: LogSettings) -> None:
    checkpoint = three_batches(settings)
    (disk(checkpoint) / "state/0/0/3.changelog").write_text("")  # the third batch writes it again
    (disk(checkpoint) / "offsets/0").write_text("")
    (disk(checkpoint) / "state/0/0/1.changelog").unlink()
    (disk(checkpoint) / "state/0/0/2.zip").write_text("all of it")
    (disk(checkpoint) / "state/0/0/2.changelog").write_text("")
    (disk(checkpoint) / "state/0/1/2.changelog").rename(disk(checkpoint) / "state/0/1/2_9b.changelog")
    assert why_lost(GATES, [], settings, MemoryLog()) is None


def test_a_query_that_has_not_begun_has_lost_its_state_only_if_there_were_records(settings: LogSettings) -> None:
    log = MemoryLog(partitions=2)
    Checkpoint.of(settings, GATES.tag).create()
    for key in (heartbeat_key(0), "passed/s/1"):
        log.submit(Entry(OBSERVATIONS, key, b"{}", 1), 0).result()
    assert why_lost(GATES, [ledgers({"observations/0": 1})], settings, log) is None, (
        "a heartbeat came before it was built"
    )
    assert why_lost(GATES, [ledgers({"observations/0": 2})], settings, log) == OLDER


def test_what_another_release_has_written_in_another_form_is_lost(settings: LogSettings) -> None:
    note = disk(three_batches(settings)) / "headwater.json"
    written = json.loads(note.read_text())
    assert why_lost(GATES, [], settings, MemoryLog()) is None
    note.write_text(json.dumps({**written, "format": 2}))
    lost = "has the format 2 of another release of Headwater, and this one has 1"
    assert why_lost(GATES, [], settings, MemoryLog()) == lost


@pytest.mark.parametrize(("noted", "lost"), [
    ({"spark": "4.0.1"}, None),
    ({"spark": "4.2.9"}, None),
    ({"format": "1"}, DAMAGED),
    ({"spark": "4.10.0"}, "was written by Spark 4.10.0, which is newer than this Spark, 4.2.0"),
    ({"spark": "5.0.0"}, "was written by Spark 5.0.0, which is newer than this Spark, 4.2.0"),
    ({"spark": "new"}, DAMAGED),
    ({"spark": None}, DAMAGED),
])  # fmt: skip
def test_what_a_newer_spark_has_written_is_lost(
    settings: LogSettings, noted: dict[str, object], lost: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.projections.spark.stream_queries.checkpoint.spark_version", lambda: "4.2.0")
    checkpoint = three_batches(settings)
    assert checkpoint.spark() == "4.2.0"
    note = disk(checkpoint) / "headwater.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | noted))
    assert why_lost(GATES, [], settings, MemoryLog()) == lost
    note.write_text("[]")
    assert why_lost(GATES, [], settings, MemoryLog()) == DAMAGED
    note.unlink()
    assert why_lost(GATES, [], settings, MemoryLog()) == DAMAGED
