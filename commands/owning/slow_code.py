"""Reports code of the user that does not return: in the log, and for the health of the API through a topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

import orjson

from headwater.commands.owning.running_code import RunningCode, running_in
from headwater.eventlog import topics
from headwater.eventlog.envelope import format_time
from headwater.eventlog.ports import Entry, EventLog, Role
from headwater.eventlog.times import now_ms

SLOW_S: Final = 5.0
"""Code of a user that takes so long is reported: meanwhile its whole partition waits."""
LOGGED_EVERY_S: Final = 60.0
RENEWED_EVERY_S: Final = 10.0
"""How often a report in the topic is written again, so that readers know that its process lives."""
CURRENT_MS: Final = 30_000
"""A report that is older was not taken back, because its process has ended."""

logger = logging.getLogger(__name__)


class Worker(Protocol):
    """The thread of a partition."""

    partition: int

    @property
    def ident(self) -> int | None:
        """See threading.Thread."""


class _Report(NamedTuple):
    code: RunningCode
    log_at_s: float
    renew_at_s: float


class SlowCode:
    """Watches the workers of one role; call `report` every moment, and `close` at the end, from one thread."""

    def __init__(self, log: EventLog, role: Role) -> None:
        self._log, self._role = log, role
        self._reports: dict[int, _Report] = {}
        """By partition."""

    def report(self, workers: Iterable[Worker]) -> None:
        """Report what has been running for SLOW_S, and what has returned."""
        slow = {each.partition: code for each in workers if (code := running_in(each.ident)) and code.seconds >= SLOW_S}
        for partition in self._reports.keys() - slow.keys():
            self._take_back(partition)
        for partition, code in slow.items():
            known = self._reports.get(partition)
            if known is not None and known.code is not code:
                self._take_back(partition)
                known = None
            self._write(partition, code, known or _Report(code, 0.0, 0.0))

    def close(self) -> None:
        """Take back all reports."""
        for partition in list(self._reports):
            self._take_back(partition)

    def _write(self, partition: int, code: RunningCode, known: _Report) -> None:
        now = time.monotonic()
        log_at, renew_at = known.log_at_s, known.renew_at_s
        if now >= log_at:
            log_at = now + LOGGED_EVERY_S
            logger.warning(
                "partition %d of the %s waits: %s has been running for %.0f s; if it does not return, fix it and "
                "restart the handler",
                partition, self._role.name, code, code.seconds,
            )  # fmt: skip
        if now >= renew_at:
            renew_at = now + RENEWED_EVERY_S
            since = datetime.now(UTC) - timedelta(seconds=code.seconds)
            document = {
                "role": self._role.name, "partition": partition, "code": str(code), "since": format_time(since),
            }  # fmt: skip
            self._submit(partition, orjson.dumps(document))
        self._reports[partition] = _Report(code, log_at, renew_at)

    def _take_back(self, partition: int) -> None:
        code = self._reports.pop(partition).code
        logger.info("partition %d of the %s: %s no longer runs", partition, self._role.name, code)
        self._submit(partition, None)

    def _submit(self, partition: int, value: bytes | None) -> None:
        entry = Entry(topics.SLOW_CODE, f"{self._role.name}/{partition}", value, now_ms())
        self._log.submit(entry, 0).add_done_callback(_note)


def _note(stored: Future[int]) -> None:
    if (error := stored.exception()) is not None:
        logger.warning("a report of slow code was not stored: %s", error)


def slow_code(log: EventLog, time_ms: int) -> list[str]:
    """What handlers report now, one line each; time_ms: now, since 1970. Raises LogUnavailable."""
    if not log.stored_ends(topics.SLOW_CODE).get(0):
        return []
    start = log.offset_at(topics.SLOW_CODE, 0, time_ms - CURRENT_MS)
    latest = {record.key: record.value for record in log.read(topics.SLOW_CODE, 0, start)}
    reports = [orjson.loads(value) for value in latest.values() if value is not None]
    return [
        f"partition {each['partition']} of the {each['role']} waits: {each['code']} runs since {each['since']}"
        for each in reports
    ]
