"""Where records of actions are kept: the topic `audit`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Final

from eventlog.admin import prepare_topics
from eventlog.audit.record import AuditRecord
from eventlog.envelope import timestamp_ms
from eventlog.errors import LogUnavailable
from eventlog.kafka import KafkaLog
from eventlog.ports import Entry, EventLog
from eventlog.settings import LogSettings
from eventlog.times import now_ms
from eventlog.topics import AUDIT, topic_specs

REACH_S: Final = 2.0
"""How long a broker may take to accept a connection."""
STORE_S: Final = 30.0


class Trail:
    """Appends records to the topic `audit` of a deployment, which it creates if an earlier release has not."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises SettingError."""
        self.settings = LogSettings.without_modules(env)

    def append(self, record: AuditRecord) -> None:
        """Append a record, and return when it is stored. Raises LogUnavailable."""
        _check_reachable(self.settings.bootstrap)
        with closing(KafkaLog(self.settings)) as log:
            if not log.stored_ends(AUDIT):
                prepare_topics(self.settings, [each for each in topic_specs(self.settings) if each.name == AUDIT])
            stored = log.submit(Entry(AUDIT, record.action, record.to_json(), now_ms()), 0)
            try:
                stored.result(STORE_S)
            except TimeoutError as error:
                raise LogUnavailable("recording an action", f"it was not stored within {STORE_S:g} s") from error


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
