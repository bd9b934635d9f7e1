"""Where records of actions are kept: the topic `audit`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from headwater.eventlog.audit.record import AuditRecord
from headwater.eventlog.envelope import timestamp_ms
from headwater.eventlog.errors import EventLogError, LogUnavailable, NotRecorded
from headwater.eventlog.kafka.admin import missing_topics, prepare_topics
from headwater.eventlog.kafka.writer import Appender
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import AUDIT, topic_specs

REACH_S: Final = 2.0
"""How long a broker may take to accept a connection."""
STORE_S: Final = 30.0


class Trail:
    """Appends records to the topic `audit` of a deployment, which it creates if it is missing.

    A record may come twice after an error, and is the same then.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises SettingError."""
        self.settings = LogSettings.without_modules(env)
        self._appender = Appender(self.settings, self.settings.topic(AUDIT), "recording an action", STORE_S)
        self._is_prepared = False

    def append(self, record: AuditRecord) -> None:
        """Append a record, and return when it is stored. Raises LogUnavailable."""
        if not self._is_prepared:
            _check_reachable(self.settings.bootstrap)
            own = [each for each in topic_specs(self.settings) if each.name == AUDIT]
            if missing_topics(self.settings, own):
                prepare_topics(self.settings, own)
        self._is_prepared = False  # the next record finds out at once if this one waits in vain
        self._appender.put(record.action, record.to_json())
        self._appender.flush()
        self._is_prepared = True


class Trails:
    """Appends records with trails that are kept for the next ones, because a new one connects first; threads may share
    it.

    A trail has one record at a time, so nobody waits for the record of another, or gets its error.
    """

    def __init__(self, open_trail: Callable[[], Trail]) -> None:
        self._open = open_trail
        self._idle: list[Trail] = []

    def append(self, record: AuditRecord) -> None:
        """See Trail.append; also raises SettingError."""
        try:
            trail = self._idle.pop()
        except IndexError:
            trail = self._open()
        trail.append(record)  # one that has failed is not used again
        self._idle.append(trail)


def begin(
    append: Callable[[AuditRecord], None],
    verb: str,
    arguments: Mapping[str, Any],
    environment: str,
    env: Mapping[str, str],
    actor: str | None = None,
) -> AuditRecord:
    """Record that an action begins, and return the record. Raises NotRecorded: then it must not be done.

    append: see Trail. actor: who asked, if it is not that of `env`.
    """
    begun = AuditRecord.begin(verb, arguments, environment, env)
    if actor is not None:
        begun = msgspec.structs.replace(begun, actor=actor)
    try:
        append(begun)
    except EventLogError as error:
        raise NotRecorded(verb, str(error)) from error
    return begun


def read_trail(log: EventLog, since: datetime | None = None) -> Iterator[AuditRecord | None]:
    """The records since a time, the oldest first; None for each that is none. Raises LogUnavailable."""
    if not log.stored_ends(AUDIT).get(0):
        return
    start = 0 if since is None else log.offset_at(AUDIT, 0, timestamp_ms(since))
    for record in log.read(AUDIT, 0, start):
        try:
            yield AuditRecord.from_json(record.value or b"")
        except ValueError:
            yield None


def last_of_each(records: Iterable[AuditRecord]) -> list[AuditRecord]:
    """The last record of each action, in the order of their beginnings."""
    found: dict[str, AuditRecord] = {}
    for record in records:
        if record.action not in found or record.phase == "end":
            found[record.action] = record
    return list(found.values())


def _check_reachable(bootstrap: str) -> None:
    """Raise LogUnavailable if no broker accepts connections: Kafka's client would try for long."""
    reason = "no broker is named"
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
            return
        except (OSError, UnicodeError) as error:  # UnicodeError: of a name that cannot be one, such as a..b
            reason = getattr(error, "strerror", None) or str(error)
    raise LogUnavailable("recording an action", f"{bootstrap}: {reason}")
