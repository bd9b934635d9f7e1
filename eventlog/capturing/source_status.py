"""How a source is: its connector, its snapshot, how far it is behind, and what is wrong with what helps.

The process that watches sources also measures it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.capturing.control_topics import Snapshot
from headwater.eventlog.capturing.errors import ConnectError, SourceProblem
from headwater.eventlog.capturing.kafka_connect import is_after_snapshot
from headwater.eventlog.capturing.naming import source_topics
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.errors import LogUnavailable

log = logging.getLogger(__name__)

LATE_S: Final = 60.0
"""A source that has been behind for longer needs attention."""
LATE_HEARTBEATS: Final = 3
"""So many heartbeats may be missing."""
STUCK_S: Final = 600.0
"""A first snapshot that has read nothing for longer needs attention."""
AWAITED_S: Final = 5.0
"""How long a heartbeat is waited for before a connector is called silent: one that was paused sends one soon."""
LOOK_S: Final = 0.25
MEASURE_S: Final = 10.0
"""Seconds between two looks at a source, which ask its database, Connect and the log."""
UNKNOWN: Final = "UNKNOWN"


@dataclass
class SourceStatus:
    """A source at the moment.

    state: of the connector; ABSENT if there is none, UNKNOWN if Connect does not answer.
    lag_bytes: of the database's log that are not captured yet.
    lag_s: since when all was captured.
    retained_bytes: what the database keeps for the source, of limit_bytes.
    problems: sentences, each with what solves it.
    warnings: the same, of what is right at present, and may lose changes in a failover.
    """

    source: str
    state: str = UNKNOWN
    snapshot: Snapshot | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    retained_bytes: int | None = None
    limit_bytes: int | None = None
    wal_status: str | None = None
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether changes are captured, and nothing needs attention."""
        return self.state == "RUNNING" and not self.problems

    def to_json(self) -> dict[str, Any]:
        """The document of `--json`."""
        return {**asdict(self), "healthy": self.is_healthy}


def status_of(operator: Operator) -> SourceStatus:
    """The status of a source. It raises nothing: a server that does not answer is one of the problems. What it finds
    of the database is noted by the process that watches the source."""
    status = SourceStatus(operator.source.name)
    with operator.control.noting_no_verdict():
        for look in (look_at_connector, look_at_database, look_at_rows, look_at_log):
            try:
                look(operator, status)
            except SourceProblem as error:
                status.problems.extend(problem for problem in error.problems if problem not in status.problems)
            except (ConnectError, LogUnavailable) as error:
                if str(error) not in status.problems:
                    status.problems.append(str(error))
    return status


def look_at_connector(operator: Operator, status: SourceStatus) -> None:
    """Note the connector's state; raises ConnectError or LogUnavailable."""
    state, source = operator.state(), operator.source.name
    status.state = state.state if state else "ABSENT"
    if state is None:
        status.problems.append("it has no connector: run headwater sources apply")
    elif state.state == "FAILED":
        status.problems.append(
            operator.lost_changes(state.error)
            or f"its connector failed ({state.error}): solve that; headwater sources watch "
            f"restarts it, or run headwater sources restart {source}"
        )
    elif state.state == "STOPPED" and operator.left_stopped() is not None:
        status.problems.append(
            "its connector was stopped by a command, which lets it run again at its end: if that command does not run "
            f"any more, headwater sources watch does so, or run headwater sources resume {source}"
        )
    elif state.state in ("PAUSED", "STOPPED"):
        status.problems.append(f"its connector is {state.state.lower()}: run headwater sources resume {source}")


def look_at_database(operator: Operator, status: SourceStatus) -> None:
    """Note what the database says; raises SourceProblem or LogUnavailable."""
    is_registered = status.state not in ("ABSENT", UNKNOWN)
    with operator.open_database() as database:
        status.problems.extend(database.check(is_registered).problems)
        status.warnings.extend(database.warnings())
        operator.ahead_s = database.clock_s() - time.time()
        standing = database.standing(is_running=status.state == "RUNNING")
        status.lag_bytes, status.retained_bytes = standing.lag_bytes, standing.retained_bytes
        status.limit_bytes, status.wal_status = standing.limit_bytes, standing.wal_status
        lost = operator.lost(database) if is_registered else None
    for problem in (*standing.problems, *([lost] if lost else [])):
        if problem not in status.problems:
            status.problems.append(problem)


def look_at_rows(operator: Operator, status: SourceStatus) -> None:
    """Note what is captured otherwise than declared, and rows that are not so; raises ConnectError, LogUnavailable."""
    status.problems.extend(operator.captured_otherwise())
    status.problems.extend(operator.rows_not_as_declared())


def look_at_log(operator: Operator, status: SourceStatus) -> None:
    """Note the last snapshot, and since when nothing was captured. If a heartbeat is late, the next one is waited for.

    Raises LogUnavailable.
    """
    status.snapshot = operator.control.last_snapshot()
    runs, has_begun = status.state == "RUNNING", False
    if runs:
        has_begun = is_after_snapshot(operator.offset())
        if not has_begun and not _reads(operator):
            status.problems.append(
                f"its first snapshot has read nothing for {STUCK_S:.0f} s: see the log of Kafka Connect, or run "
                f"headwater sources restart {status.source}"
            )
    sends = runs and not (status.snapshot and status.snapshot.is_running)
    late_s = max(LATE_S, LATE_HEARTBEATS * operator.source.heartbeat_ms / 1000)
    deadline = time.monotonic() + (AWAITED_S if sends else 0.0)
    while True:
        heartbeat_s = operator.control.last_heartbeat_s(operator.engine)
        if heartbeat_s is not None:
            status.lag_s = max(0.0, time.time() + operator.ahead_s - heartbeat_s)
        if (status.lag_s is not None and status.lag_s <= late_s) or time.monotonic() >= deadline:
            break
        if heartbeat_s is None and not has_begun:
            break
        time.sleep(LOOK_S)
    is_late = status.lag_s > late_s if status.lag_s is not None else has_begun
    if sends and is_late:
        # heartbeats are kept for a day: without any, it may be longer
        since = "a day or more" if status.lag_s is None else f"{status.lag_s:.0f} s"
        status.problems.append(
            f"nothing has been captured for {since}, not even a heartbeat: see the log of Kafka Connect, "
            f"or run headwater sources restart {status.source}"
        )


def _reads(operator: Operator) -> bool:
    """Whether anything was written for the source in the last STUCK_S: a row, a report, or a note of a command."""
    log, since_ms = operator.control.log, int((time.time() - STUCK_S) * 1000)
    topics = [spec.name for spec in source_topics(operator.source, operator.settings.log)]
    places = ((topic, partition, end) for topic in topics for partition, end in log.stored_ends(topic).items() if end)
    return any(log.offset_at(topic, partition, since_ms) < end for topic, partition, end in places)


MEASURED: Final[Mapping[str, tuple[str, Callable[[SourceStatus], float | None]]]] = {
    "healthy": (
        "1 if changes are captured and nothing needs attention, else 0.",
        lambda status: float(status.is_healthy),
    ),
    "lag_bytes": ("Log of a database that is not captured yet.", lambda status: status.lag_bytes),
    "lag_seconds": ("Since when all of a database was captured.", lambda status: status.lag_s),
    "retained_bytes": ("Log that a database keeps for its source.", lambda status: status.retained_bytes),
    "limit_bytes": ("Log that a database keeps at most.", lambda status: status.limit_bytes),
    "snapshot_running": (
        "1 while rows of a snapshot are still to be read, else 0.",
        lambda status: float(status.snapshot is not None and status.snapshot.is_running),
    ),
    "problems": ("Problems that `headwater sources status` shows.", lambda status: len(status.problems)),
}


class SourceMetrics(Collector):
    """Looks at sources again and again; a server that does not answer is one of their problems."""

    def __init__(self, operators: Iterable[Operator] = ()) -> None:
        self._operators = list(operators)
        self._found: Sequence[SourceStatus] = ()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Look until `wait` returns true; it is given seconds to wait."""
        while True:
            self.look()
            if wait(MEASURE_S):
                return

    def look(self) -> None:
        """Look once. A source that cannot be looked at is not healthy."""
        found = []
        for operator in self._operators:
            try:
                found.append(status_of(operator))
            except Exception:  # without this thread, the last look would be shown for ever
                log.exception('cannot measure source "%s"', operator.source.name)
                found.append(SourceStatus(operator.source.name, problems=["it cannot be measured: see the log"]))
        self._found = found

    def collect(self) -> Iterator[Metric]:
        for name, (what, measured) in MEASURED.items():
            metric = GaugeMetricFamily(f"headwater_source_{name}", what, labels=["source"])
            for status in self._found:
                if (value := measured(status)) is not None:
                    metric.add_metric([status.source], value)
            yield metric
        rows = GaugeMetricFamily(
            "headwater_source_snapshot_rows",
            "Rows that the last snapshot has read of a table, as far as the connector has reported.",
            labels=["source", "table"],
        )
        for status in self._found:
            if status.snapshot is not None and status.snapshot.rows is not None:
                rows.add_metric([status.source, status.snapshot.table], status.snapshot.rows)
        yield rows
