"""What the read side measures again and again: its views and their stores, rebuilds, and dead letters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.letters import cause_of
from headwater.eventlog.ports import EventLog
from headwater.eventlog.programs.metrics import counter
from headwater.eventlog.source_positions import topic_and_partition
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS
from headwater.projections.errors import ProjectionError
from headwater.projections.generations.registry.registry import RebuildProgress
from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.generations.upkeep.lag import Lag, Looks, Standing
from headwater.projections.generations.upkeep.lag_reader import last_time

RECORDS: Final = ("records", "amending", "dropped", "unreadable", "lost")
"""The fields of StreamReport that count records or rows."""


@dataclass(frozen=True)
class Sample:
    """What one look has found.

    at_ms: when. lags: of each view in each store. applied_ms: by view and store, the time up to which its rows have
    everything. appended_ms: by partition of `events`, the time of its last record. All in milliseconds since 1970.
    """

    at_ms: int = 0
    lags: Sequence[Lag] = ()
    applied_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    appended_ms: Mapping[int, int] = field(default_factory=dict)


class ViewMetrics(Collector):
    """Looks at the views again and again, beside everything else: a replay, which may take hours, holds up no look.

    If the registry or the log is unavailable, the last sample stays. Its times grow old, as the views do.
    """

    def __init__(self, lags: Looks, events: EventLog) -> None:
        self._lags, self._times = lags, LastTimes(events)
        self._sample = Sample()

    @property
    def sample(self) -> Sample:
        """What the last look has found."""
        return self._sample

    def look(self) -> None:
        """Take a sample; raises EventLogError or ProjectionError."""
        began_ms, ends, lags = now_ms(), self._lags.ends(), self._lags.look()
        events = [source for source in ends if topic_and_partition(source)[0] == EVENTS]
        positions = {source: {ends[source], *(lag.position.get(source, 0) for lag in lags)} for source in events}
        times = self._times.before(positions)
        applied = {
            (lag.view, lag.store): applied_lag for lag in lags if (applied_lag := _applied(lag, times, began_ms))
        }
        known = {(lag.view, lag.store) for lag in lags}
        kept = {place: at for place, at in self._sample.applied_ms.items() if place in known}
        appended = {topic_and_partition(event)[1]: at for event in events if (at := times[event, ends[event]])}
        self._sample = Sample(began_ms, lags, kept | applied, appended)

    def collect(self) -> Iterator[Metric]:
        return families(self._sample)


class LastTimes:
    """The times of the last records before positions; those that were looked up last are remembered."""

    def __init__(self, events: EventLog) -> None:
        self._log = events
        self._known: dict[tuple[str, int], int | None] = {}

    def before(self, positions: Mapping[str, Iterable[int]]) -> Mapping[tuple[str, int], int | None]:
        """By source and position, the time of the last record before it, heartbeats included, in milliseconds since
        1970; None if there is none near. Raises LogUnavailable.
        """
        wanted = [(source, partition) for source, of_source in positions.items() for partition in of_source]
        known = self._known
        self._known = {source: known[source] if source in known else last_time(self._log, *source) for source in wanted}
        return self._known


def _applied(lag: Lag, times: Mapping[tuple[str, int], int | None], at_ms: int) -> int:
    """The time up to which a view has everything; 0 if it is not known.

    Owners of partitions append heartbeats to `events`, so the time of the last applied record grows as long as every
    part on the way works. Other topics are quiet if nothing happens: there, only events that wait make a view old.
    """
    if not lag.position or lag.freshness_s is None:
        return 0
    by_events = [times.get(place) or 0 for place in lag.position.items() if topic_and_partition(place[0])[0] == EVENTS]
    return min([*by_events, int(at_ms - lag.freshness_s * 1000)])


def families(sample: Sample) -> Iterator[Metric]:
    """The metrics of a sample."""
    places = [((lag.view, lag.store), lag) for lag in sample.lags]
    yield _gauge("look_timestamp_seconds", "When the views were last checked.", (), [((), sample.at_ms / 1000)])
    yield _gauge(
        "view_applied_timestamp_seconds",
        "Time up to which a view has everything: its freshness is the time now minus this. query: what makes it.",
        (*PLACE, "query"),
        [((*place, lag.query), at / 1000) for place, lag in places if (at := sample.applied_ms.get(place)) is not None],
    )
    behind = "Events that a view has not applied."
    yield _gauge("view_lag_events", behind, PLACE, [(place, lag.lag_events) for place, lag in places])
    waiting = "Patches that a loader has not applied."
    yield _gauge("view_lag_patches", waiting, PLACE, [(place, lag.lag_patches) for place, lag in places])
    yield _gauge(
        "view_standing",
        "1 for the state of a view, as in `replay status`.",
        (*PLACE, "standing"),
        [
            ((*place, argument), float(lag.standing == argument))
            for place, lag in places
            for argument in get_args(Standing)
        ],
    )
    paused = {lag.view: _seconds(lag.paused_since) for lag in sample.lags if lag.paused_since is not None}
    since = "Since when a view is paused; there is none if it is not."
    yield _gauge("view_paused_timestamp_seconds", since, ("view",), [((view,), at) for view, at in paused.items()])
    yield _gauge(
        "partition_appended_timestamp_seconds",
        "Time of the last record of a partition of events: its owner appends a heartbeat every 5 s at least.",
        ("partition",),
        [((str(partition),), at / 1000) for partition, at in sample.appended_ms.items()],
    )
    reports = {lag.view: lag.stream for lag in sample.lags if lag.stream is not None}
    for name, (what, measured) in OF_STREAMS.items():
        yield _gauge(
            f"stream_{name}", what, ("view",), [((view,), measured(report)) for view, report in reports.items()]
        )
    yield _gauge(
        "stream_records",
        "Records of a stream view since its generation began; those late (amending, dropped), unreadable or lost.",
        ("view", "kind"),
        [((view, kind), getattr(report, kind)) for view, report in reports.items() for kind in RECORDS],
    )


def _gauge(
    name: str, what: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float | None]]
) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(f"headwater_{name}", what, labels=labels)
    for place, value in values:
        if value is not None:
            metric.add_metric(place, value)
    return metric


def _seconds(time: str) -> float:
    """An RFC 3339 time in seconds since 1970."""
    return datetime.fromisoformat(time).timestamp()


PLACE: Final = ("view", "store")
OF_STREAMS: Final[Mapping[str, tuple[str, Callable[[StreamReport], float | None]]]] = {
    "watermark_timestamp_seconds": (
        "Watermark of a stream view.",
        lambda stats: _seconds(stats.watermark) if stats.watermark else None,
    ),
    "state_rows": ("Rows in the state of a stream view.", lambda stats: stats.state_rows),
    "state_bytes": ("Size of the state of a stream view.", lambda stats: stats.state_bytes),
    "batch_seconds": ("How long the last batch of a stream view took.", lambda stats: stats.batch_s),
    "failed": ("1 if the query of a stream view has failed, else 0.", lambda stats: float(bool(stats.failure))),
}
"""What is measured of each stream view."""


class RebuildMetrics(Collector):
    """The progress of the rebuilds that run, as their processes note it in the registry."""

    def __init__(self, rebuilds: Callable[[], Sequence[RebuildProgress]] = tuple) -> None:
        """rebuilds: returns those that run; may raise StoreUnavailable."""
        self._rebuilds = rebuilds
        self._found: Sequence[RebuildProgress] = ()

    def look(self) -> None:
        """Read their progress; raises StoreUnavailable."""
        self._found = self._rebuilds()

    def collect(self) -> Iterator[Metric]:
        progress_rows = [((progress.view, progress.phase), progress) for progress in self._found]
        labels, done = ("view", "phase"), "What a phase of a rebuild has done: events, or patches to catch up."
        yield _gauge("rebuild_done", done, labels, [(place, progress.done) for place, progress in progress_rows])
        total = "What it has to do; 0 if it counts nothing."
        yield _gauge("rebuild_total", total, labels, [(place, progress.total) for place, progress in progress_rows])
        changed = "When a rebuild last made progress."
        times = [(place, progress.changed_s) for place, progress in progress_rows]
        yield _gauge("rebuild_changed_timestamp_seconds", changed, labels, times)


class _Kind(NamedTuple):
    """What a letter counts as. topic: of the record that could not be processed."""

    topic: str
    cause: str


@dataclass(frozen=True)
class _Found:
    """What one look has found. oldest_ms: since 1970, when the oldest letter of each kind was written."""

    numbers: Mapping[_Kind, int] = field(default_factory=dict)
    oldest_ms: Mapping[_Kind, int] = field(default_factory=dict)


class LetterMetrics(Collector):
    """Reads the topic of dead letters once, and afterwards only what is new in it; keeps a time per letter."""

    def __init__(self, log: EventLog | None = None) -> None:
        """log: None: none is known, only the names of metrics are."""
        self._log = log
        self._next, self._incarnation = 0, ""
        self._written_ms: dict[_Kind, dict[str, int]] = {}
        """By kind and key, when the letter was written first."""
        self._found = _Found()

    @property
    def keys(self) -> list[str]:
        """The keys of all letters, as the last look found them."""
        return [key for letters in self._written_ms.values() for key in letters]

    def look(self) -> None:
        """Read what is new; raises LogUnavailable."""
        if self._log is None:
            return
        incarnation = self._log.incarnation(DEAD_LETTERS)
        if incarnation != self._incarnation:  # the topic was recreated
            self._next, self._incarnation, self._written_ms, self._found = 0, incarnation, {}, _Found()
        end = self._log.end(DEAD_LETTERS, 0)
        if end == self._next:
            return
        for record in self._log.read(DEAD_LETTERS, 0, self._next, end):
            of_kind = self._written_ms.setdefault(_Kind(record.key.partition("/")[0], cause_of(record.key)), {})
            if record.value is None:
                of_kind.pop(record.key, None)
            else:
                of_kind.setdefault(record.key, record.timestamp_ms)
        self._next = end
        waiting = {kind: times for kind, times in self._written_ms.items() if times}
        self._found = _Found(
            {kind: len(times) for kind, times in waiting.items()},
            {kind: min(times.values()) for kind, times in waiting.items()},
        )

    def collect(self) -> Iterator[Metric]:
        queries, labels = self._found, ("topic", "cause")
        numbers = "Dead letters that wait for an operator."
        yield _gauge("dead_letters", numbers, labels, list(queries.numbers.items()))
        oldest, times = (
            "When the oldest of them was written.",
            [(kind, at / 1000) for kind, at in queries.oldest_ms.items()],
        )
        yield _gauge("dead_letters_oldest_timestamp_seconds", oldest, labels, times)


SAMPLE_S: Final = 5.0
"""Seconds between two looks."""

FAILED: Final = counter(
    "looks_failed", "Looks at what this process measures that failed: it shows what the last one found.", ["what"]
)

log = logging.getLogger(__name__)


def look_until(stop: threading.Event, looks: Mapping[str, Callable[[], None]]) -> None:
    """Look until `stop` is set. looks: by what they measure; an error is logged and counted, and stops no other."""
    failed = {what: FAILED.labels(what) for what in looks}
    while True:
        for what, look in looks.items():
            try:
                look()
            except (EventLogError, ProjectionError) as error:
                log.warning("cannot measure %s: %s", what, error)
                failed[what].inc()
            except Exception:
                log.exception("cannot measure %s", what)
                failed[what].inc()
        if stop.wait(SAMPLE_S):
            return
