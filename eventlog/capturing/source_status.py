"""How a source is: its connector, its snapshot, how far it is behind, and what is wrong with what helps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headwater.eventlog.capturing.control_topics import Snapshot, last_heartbeat_s, last_snapshot
from headwater.eventlog.capturing.errors import ConnectError, SourceProblem
from headwater.eventlog.capturing.kafka_connect import ConnectorState
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.errors import LogUnavailable

LATE_S: Final = 60.0
"""A source that has been behind for longer needs attention."""
AWAITED_S: Final = 5.0
"""How long a heartbeat is waited for before a connector is called silent: one that was paused sends one soon."""
LOOK_S: Final = 0.25
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
    """The status of a source. It raises nothing: a server that does not answer is one of the problems."""
    status = SourceStatus(operator.source.name)
    for look in (_look_at_connector, _look_at_database, _look_at_rows, _look_at_log):
        try:
            look(operator, status)
        except SourceProblem as error:
            status.problems.extend(error.problems)
        except (ConnectError, LogUnavailable) as error:
            if str(error) not in status.problems:
                status.problems.append(str(error))
    return status


def _look_at_connector(operator: Operator, status: SourceStatus) -> None:
    found = operator.connect.state(operator.names.connector)
    status.state = found.state if found else "ABSENT"
    status.problems.extend(_connector_problems(operator, found))


def _connector_problems(operator: Operator, found: ConnectorState | None) -> Iterator[str]:
    source = operator.source.name
    if found is None:
        yield "it has no connector: run headwater sources apply"
    elif (lost := lost_changes(operator, found)) is not None:
        yield lost
    elif found.state == "FAILED":
        yield (
            f"its connector failed ({found.error}): solve that; headwater sources watch "
            f"restarts it, or run headwater sources restart {source}"
        )
    elif found.state == "STOPPED" and operator.left_stopped() is not None:
        yield (
            "its connector was stopped by a command, which lets it run again at its end: if that command does not run "
            f"any more, headwater sources watch does so, or run headwater sources resume {source}"
        )
    elif found.state in ("PAUSED", "STOPPED"):
        yield f"its connector is {found.state.lower()}: run headwater sources resume {source}"


def lost_changes(operator: Operator, state: ConnectorState) -> str | None:
    """What a connector that failed says of changes that are missing, and what helps; None if it says nothing of any."""
    return operator.lost_changes(state.error) if state.state == "FAILED" else None


def _look_at_database(operator: Operator, status: SourceStatus) -> None:
    with operator.open_database() as database:
        status.problems.extend(database.check(registered=status.state not in ("ABSENT", UNKNOWN)).problems)
        status.warnings.extend(database.warnings())
        found = database.standing(is_running=status.state == "RUNNING")
        status.lag_bytes, status.retained_bytes = found.lag_bytes, found.retained_bytes
        status.limit_bytes, status.wal_status = found.limit_bytes, found.wal_status
        status.problems.extend(each for each in found.problems if each not in status.problems)
        lost = operator.lost(database) if status.state not in ("ABSENT", UNKNOWN) else None
    if lost is not None and lost not in status.problems:
        status.problems.append(lost)


def _look_at_rows(operator: Operator, status: SourceStatus) -> None:
    status.problems.extend(operator.rows_not_as_declared())


def _look_at_log(operator: Operator, status: SourceStatus) -> None:
    log, names = operator.settings.log, operator.names
    status.snapshot = last_snapshot(log, names)
    sends = status.state == "RUNNING" and not (status.snapshot and status.snapshot.is_running)
    status.lag_s = _since_heartbeat_s(operator, AWAITED_S if sends else 0.0)
    if sends and status.lag_s is not None and status.lag_s > LATE_S:
        status.problems.append(
            f"nothing has been captured for {status.lag_s:.0f} s, not even a heartbeat: see the log of Kafka Connect, "
            f"or run headwater sources restart {status.source}"
        )


def _since_heartbeat_s(operator: Operator, wait_s: float) -> float | None:
    """Seconds since the last heartbeat; None: there is none. If it is late, the next one is waited for."""
    deadline = time.monotonic() + wait_s
    while True:
        heartbeat_s = last_heartbeat_s(operator.settings.log, operator.names, operator.engine)
        if heartbeat_s is None:
            return None
        since_s = max(0.0, time.time() - heartbeat_s)
        if since_s <= LATE_S or time.monotonic() >= deadline:
            return since_s
        time.sleep(LOOK_S)


def uncaptured(operator: Operator) -> str | None:
    """What a connector that runs has not captured, and what helps; None if nothing is known to be missing.

    Raises SourceProblem, ConnectError or LogUnavailable.
    """
    return operator.find_lost() or "; ".join(operator.rows_not_as_declared()) or None
