"""How a source is: its connector, its snapshot, how far it is behind, and what is wrong with what helps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from eventlog.capturing.control_topics import Snapshot, last_heartbeat_s, last_snapshot
from eventlog.capturing.errors import ConnectError, SourceProblem
from eventlog.capturing.kafka_connect import ConnectorState
from eventlog.capturing.operating import Operator, lost_slot
from eventlog.capturing.postgres_checks import check_database
from eventlog.capturing.postgres_database import Slot, open_database
from eventlog.errors import LogUnavailable

LATE_S: Final = 60.0
"""A source that has been behind for longer needs attention."""
ALARM_SHARE: Final = 0.5
"""If a slot keeps more than this share of what it may, it needs attention."""
UNKNOWN: Final = "UNKNOWN"
GAP: Final = "no longer available on the server"
"""In Debezium's error, if changes after the last captured one are missing."""


@dataclass
class SourceStatus:
    """A source at the moment.

    state: of the connector; ABSENT if there is none, UNKNOWN if Connect does not answer. lag_bytes: of write-ahead log
    that is not captured yet. lag_s: since when all was captured. retained_bytes: what the database keeps for the
    source, of limit_bytes. problems: sentences, each with what solves it.
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
    for look in (_look_at_connector, _look_at_database, _look_at_log):
        try:
            look(operator, status)
        except SourceProblem as error:
            status.problems.extend(error.problems)
        except (ConnectError, LogUnavailable) as error:
            status.problems.append(str(error))
    return status


def _look_at_connector(operator: Operator, status: SourceStatus) -> None:
    found = operator.connect.state(operator.names.connector)
    status.state = found.state if found else "ABSENT"
    status.problems.extend(_connector_problems(operator, found))


def _connector_problems(operator: Operator, found: ConnectorState | None) -> Iterator[str]:
    source = operator.source.name
    if found is None:
        yield "it has no connector: run python -m eventlog.sources apply"
    elif found.state == "FAILED" and GAP in found.error:
        yield lost_slot(source, operator.names, "it was dropped, or created again")
    elif found.state == "FAILED":
        yield (
            f"its connector failed ({found.error}): solve that; python -m eventlog.sources watch "
            f"restarts it, or run python -m eventlog.sources restart {source}"
        )
    elif found.state in ("PAUSED", "STOPPED"):
        yield f"its connector is {found.state.lower()}: run python -m eventlog.sources resume {source}"


def _look_at_database(operator: Operator, status: SourceStatus) -> None:
    names = operator.names
    with open_database(operator.source, names, operator.settings.database) as database:
        slot = database.slot()
        status.limit_bytes = database.wal_limit_bytes()
        status.problems.extend(check_database(database, registered=status.state not in ("ABSENT", UNKNOWN)).problems)
    if slot is None:
        if status.state == "RUNNING":
            status.problems.append(
                f"replication slot {names.slot} does not exist: if the connector does not create it soon, changes are "
                f"missing; run python -m eventlog.sources remove {status.source}, then apply"
            )
        return
    status.lag_bytes, status.retained_bytes, status.wal_status = slot.lag_bytes, slot.retained_bytes, slot.wal_status
    status.problems.extend(_slot_problems(operator, slot, status.limit_bytes))


def _slot_problems(operator: Operator, slot: Slot, limit_bytes: int | None) -> Iterator[str]:
    if slot.is_lost:
        yield lost_slot(operator.source.name, operator.names, slot.invalidation)
    elif limit_bytes and (slot.retained_bytes or 0) > limit_bytes * ALARM_SHARE:
        yield (
            f"the database keeps {slot.retained_bytes:,} bytes for replication slot {operator.names.slot}, and drops "
            f"it at {limit_bytes:,}: let the connector run, or raise max_slot_wal_keep_size"
        )


def _look_at_log(operator: Operator, status: SourceStatus) -> None:
    log, names = operator.settings.log, operator.names
    status.snapshot = last_snapshot(log, names)
    heartbeat_s = last_heartbeat_s(log, names)
    if heartbeat_s is None:
        return
    status.lag_s = max(0.0, time.time() - heartbeat_s)
    if status.state == "RUNNING" and status.lag_s > LATE_S and not (status.snapshot and status.snapshot.is_running):
        status.problems.append(
            f"nothing has been captured for {status.lag_s:.0f} s, not even a heartbeat: see the log of Kafka Connect, "
            f"or run python -m eventlog.sources restart {status.source}"
        )
