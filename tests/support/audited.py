"""An audit log in memory, instead of the topic of whatever Kafka runs on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.settings import LogSettings


class MemoryTrail:
    """Keeps records as they are stored. fails: when to be unavailable, by phase."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.fails: set[str] = set()
        self.settings = LogSettings()

    def __call__(self, env: Mapping[str, str]) -> MemoryTrail:
        """Opened, like `Trail`."""
        self.settings = LogSettings.without_modules(env)
        return self

    def append(self, record: AuditRecord) -> None:
        """See Trail.append."""
        if record.phase in self.fails:
            raise LogUnavailable("recording an action", "no broker")
        self.stored.append(record.to_json())

    def check_partitions(self) -> None:
        """See Trail.check_partitions."""

    @property
    def records(self) -> list[AuditRecord]:
        """What was recorded."""
        return [AuditRecord.from_json(each) for each in self.stored]
