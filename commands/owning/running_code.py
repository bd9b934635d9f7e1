"""Which code of the user a thread is running; code that does not return is reported in the log, and in a topic that the
health of the API reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from threading import get_ident
from typing import Final, NamedTuple

import orjson

from headwater.eventlog import topics
from headwater.eventlog.envelope import format_time
from headwater.eventlog.ports import Entry, EventLog, Role
from headwater.eventlog.programs.logs import trace_id_of
from headwater.eventlog.times import now_ms

SHOWN_CHARACTERS: Final = 200
"""Of each name, which a user chooses."""


class RunningCode(NamedTuple):
    """A call of a user's code.

    function: such as `decide`. name: what it is about, such as the type of the command. subject: the stream, instance
    or record. id: of the command or event, as far as it is known. since_s: of the monotonic clock.
    traceparent: of the command or event, if it has one.
    """

    function: str
    name: str
    subject: str
    id: str
    since_s: float
    traceparent: str | None = None

    @property
    def facts(self) -> Mapping[str, object]:
        """What lines say that are logged meanwhile (see `eventlog.programs.logs.FACTS`)."""
        known, subject = {"trace_id": trace_id_of(self.traceparent)}, self.subject[:SHOWN_CHARACTERS]
        match self.function:
            case "decide":
                return {**known, "stream": subject, "command_id": self.id, "command_type": self.name}
            case "write the state":
                return {**known, "stream": subject, "command_id": self.id}
            case "react":
                return {**known, "instance": subject}
            case _:
                return {}

    @property
    def seconds(self) -> float:
        """For how long it has been running."""
        return time.monotonic() - self.since_s

    def __str__(self) -> str:
        about = f'"{self.name[:SHOWN_CHARACTERS]}" of "{self.subject[:SHOWN_CHARACTERS]}"'
        return f'"{self.function}" for {about} (id "{self.id[:SHOWN_CHARACTERS]}")'


_running: dict[int, tuple[str, str, str, str, float, str | None]] = {}
"""By thread, the members of its RunningCode, which is made if somebody asks: each command is noted, few are shown."""


class running:  # noqa: N801 - it is used like a function; one of contextlib takes twice as long
    """While it is open, as in `with running(…)`, this thread runs the user's code (see RunningCode)."""

    __slots__ = ("_code",)

    def __init__(self, function: str, name: str, subject: str, id: str, traceparent: str | None = None) -> None:
        self._code = function, name, subject, id, time.monotonic(), traceparent

    def __enter__(self) -> None:
        _running[get_ident()] = self._code

    def __exit__(self, *_: object) -> None:
        _running.pop(get_ident(), None)


def running_in(thread: int | None) -> RunningCode | None:
    """The code of the user that a thread is running; thread: its `ident`."""
    code = None if thread is None else _running.get(thread)
    return None if code is None else RunningCode(*code)


def running_facts() -> Mapping[str, object]:
    """What lines of the log say that this thread writes now, if it runs the user's code."""
    code = running_in(get_ident())
    return {} if code is None else code.facts


SLOW_S: Final = 5.0
"""Code of a user that takes so long is reported: meanwhile its whole partition waits."""
LOGGED_EVERY_S: Final = 60.0
RENEWED_EVERY_S: Final = 10.0
"""How often a report in the topic is written again, so that readers know that its process lives."""
CURRENT_MS: Final = 30_000
"""A report that is older was not taken back, because its process has ended."""

logger = logging.getLogger(__name__)


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

    def report(self, threads: Mapping[int, int | None]) -> None:
        """Report what has been running for SLOW_S, and what has returned. threads: their `ident`s, by partition."""
        running_code = {partition: running_in(thread) for partition, thread in threads.items()}
        slow = {partition: code for partition, code in running_code.items() if code and code.seconds >= SLOW_S}
        for partition in self._reports.keys() - slow.keys():
            self._take_back(partition)
        for partition, code in slow.items():
            known = self._reports.get(partition)
            if known is not None and known.code != code:  # another call
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
        f"partition {report['partition']} of the {report['role']} waits: {report['code']} runs since {report['since']}"
        for report in reports
    ]
