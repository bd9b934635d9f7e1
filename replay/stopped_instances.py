"""The process instances that have stopped, read from the log once for all dead letters."""

from __future__ import annotations

from typing import Final

from headwater.commands.reacting.instance import waits_for
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import EventLog
from headwater.eventlog.topics import PROCESSES

_MARK: Final = b'"stopped":'
"""Bytes that the record of an instance contains if it has stopped; most have not."""


class StoppedInstances:
    """What the log says of stopped instances, always up to its end: each record is read once."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._read: dict[int, int] = {}
        """By partition, the offset up to which it was read."""
        self._found: dict[str, bytes] = {}

    def wait_for(self, record_key: str, event_id: str) -> bool:
        """Whether an instance has stopped at this event or timer. record_key: of the instance."""
        partition = partition_of(record_key, self._log.partitions)
        end = self._log.end(PROCESSES, partition)
        for record in self._log.read(PROCESSES, partition, self._read.get(partition, 0), end):
            if record.value is not None and _MARK in record.value:
                self._found[record.key] = record.value
            else:
                self._found.pop(record.key, None)
        self._read[partition] = end
        return waits_for(self._found.get(record_key), event_id)
