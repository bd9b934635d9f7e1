"""How old the rows of views are, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record, abort_on_error
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.generations.upkeep import view_metrics
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.lag_reader import FIRST_WINDOW
from headwater.projections.generations.upkeep.view_metrics import LastTimes, Sample, ViewMetrics, families

OBSERVED = f"{OBSERVATIONS}/0"
HERE = Lag("listings", "postgres", 1, 3, "caught up", {"0": 2, "1": 2}, 0, 0, 0.0)
NOW_MS = 100_000


@dataclass
class Log(MemoryLog):
    """Counts how often it is read."""

    reads: int = 0

    def __post_init__(self) -> None:
        MemoryLog.__init__(self, partitions=2)

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        self.reads += 1
        return super().read(topic, partition, start, end)

    def beat(self, partition: int, time_ms: int) -> None:
        """Append a heartbeat, whose transaction takes an offset more."""
        with abort_on_error(self.own(partition).begin()) as transaction:
            transaction.append([Entry(EVENTS, heartbeat_key(partition), b"{}", time_ms)])
            transaction.commit()


@dataclass
class Looks:
    """What looks find, at the end of the log."""

    log: Log
    lags: list[Lag] = field(default_factory=list)

    def ends(self) -> dict[str, int]:
        return {"0": self.log.end(EVENTS, 0), "1": self.log.end(EVENTS, 1), OBSERVED: self.log.end(OBSERVATIONS, 0)}

    def look(self) -> list[Lag]:
        if not self.lags:
            raise StoreUnavailable("postgres", "away")
        return self.lags


def values(metrics: ViewMetrics, name: str) -> dict[tuple[str, ...], float]:
    (found,) = (span for span in metrics.collect() if span.name == f"headwater_{name}")
    return {
        tuple(value for label, value in sample.labels.items() if label != "query"): sample.value
        for sample in found.samples
    }


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_metrics, "now_ms", lambda: NOW_MS)


def test_a_view_is_as_old_as_the_last_record_that_it_has_of_the_partition_that_is_furthest_behind() -> None:
    log = Log()
    log.beat(0, 50_000)
    log.beat(1, 60_000)
    log.beat(1, 65_000)
    looks = Looks(log, [HERE, replace(HERE, store="valkey", position={"0": 2, "1": 4})])
    metrics = ViewMetrics(looks, log)
    metrics.look()
    applied = values(metrics, "view_applied_timestamp_seconds")
    assert applied == {("listings", "postgres"): 50.0, ("listings", "valkey"): 50.0}
    assert values(metrics, "partition_appended_timestamp_seconds") == {("0",): 50.0, ("1",): 65.0}
    log.beat(0, 70_000)
    looks.lags = [replace(lag, position={**lag.position, "0": 4}) for lag in looks.lags]
    metrics.look()
    applied = values(metrics, "view_applied_timestamp_seconds")
    assert applied == {("listings", "postgres"): 60.0, ("listings", "valkey"): 65.0}
    assert values(metrics, "look_timestamp_seconds") == {(): NOW_MS / 1000}


def test_a_view_of_a_quiet_topic_is_old_only_if_something_waits_for_it() -> None:
    log = Log()
    quiet = replace(HERE, view="hourly_views", position={OBSERVED: 0})
    metrics = ViewMetrics(Looks(log, [quiet, replace(quiet, store="valkey", freshness_s=7.5)]), log)
    metrics.look()
    applied = values(metrics, "view_applied_timestamp_seconds")
    assert applied == {("hourly_views", "postgres"): 100.0, ("hourly_views", "valkey"): 92.5}


def test_what_cannot_be_read_stays_and_grows_old_and_what_is_gone_is_not_shown() -> None:
    log = Log()
    log.beat(0, 50_000)
    log.beat(1, 60_000)
    looks = Looks(log, [HERE, replace(HERE, view="gone")])
    metrics = ViewMetrics(looks, log)
    metrics.look()
    looks.lags = [replace(HERE, standing="away", position={}, lag_events=None, lag_patches=None, freshness_s=None)]
    metrics.look()
    assert values(metrics, "view_applied_timestamp_seconds") == {("listings", "postgres"): 50.0}
    assert values(metrics, "view_lag_events") == {}
    assert values(metrics, "view_standing")["listings", "postgres", "away"] == 1
    looks.lags = []
    with pytest.raises(StoreUnavailable):
        metrics.look()
    assert values(metrics, "view_applied_timestamp_seconds") == {("listings", "postgres"): 50.0}


def test_a_paused_view_says_since_when_until_it_is_resumed() -> None:
    log, paused = Log(), replace(HERE, standing="paused", paused_since="1970-01-01T00:01:30+00:00")
    looks = Looks(log, [paused, replace(paused, store="valkey"), replace(HERE, view="other")])
    metrics = ViewMetrics(looks, log)
    metrics.look()
    assert values(metrics, "view_paused_timestamp_seconds") == {("listings",): 90.0}
    assert values(metrics, "view_standing")["listings", "valkey", "paused"] == 1
    looks.lags = [HERE]
    metrics.look()
    assert values(metrics, "view_paused_timestamp_seconds") == {}


def test_the_time_before_a_position_is_found_behind_markers_and_gaps_and_read_once() -> None:
    log = Log()
    log.beat(0, 50_000)
    for _ in range(60):  # aborted transactions leave offsets without records
        log.own(0).begin().append([Entry(EVENTS, heartbeat_key(0), b"{}", 1)])
    times, end = LastTimes(log), log.end(EVENTS, 0)
    assert end > 4 * FIRST_WINDOW
    assert times.before({"0": [end]}) == {("0", end): 50_000}
    reads = log.reads
    assert times.before({"0": [end, 0]}) == {("0", end): 50_000, ("0", 0): None}
    assert log.reads == reads


def test_the_queries_of_stream_views_are_measured() -> None:
    report = StreamReport(
        batch=3, batch_s=1.5, records=10, dropped=2, state_rows=7, watermark="2026-01-01T00:00:00.000Z"
    )
    found = {family.name: family for family in families(Sample(1, [replace(HERE, stream=report)]))}
    (mark,) = found["headwater_stream_watermark_timestamp_seconds"].samples
    assert (mark.labels, mark.value) == ({"view": "listings"}, 1767225600.0)
    counted = {sample.labels["kind"]: sample.value for sample in found["headwater_stream_records"].samples}
    assert counted == {"records": 10, "amending": 0, "dropped": 2, "unreadable": 0, "lost": 0}
    none = {
        family.name: family for family in families(Sample(1, [replace(HERE, stream=replace(report, watermark=""))]))
    }
    assert none["headwater_stream_watermark_timestamp_seconds"].samples == []
