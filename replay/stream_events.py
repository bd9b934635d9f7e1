"""The events of one stream, found in the log by reading its partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.commands.codec import fold
from headwater.commands.declaring.registry import AnyAggregate
from headwater.eventlog.envelope import Envelope, decode, partition_of
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import EventLog
from headwater.eventlog.topics import EVENTS


class StoredEvent(NamedTuple):
    """An event that is still in the log. erased: it has a tombstone, but compaction has not removed it yet."""

    id: str
    version: int
    offset: int
    value: bytes
    erased: bool

    @property
    def envelope(self) -> Envelope | None:
        """Its envelope; None if it cannot be read."""
        try:
            return decode(self.value)
        except NotAnEnvelope:
            return None


def is_version(text: str) -> bool:
    """Whether a text is the version in the id of an event."""
    return text.isascii() and text.isdecimal()


class StreamEvents:
    """What the log has of one stream; `read` adds what came since."""

    def __init__(self, log: EventLog, stream: str) -> None:
        self.stream, self.partition = stream, partition_of(stream, log.partitions)
        self._log, self._next = log, 0
        self._stored: dict[int, StoredEvent] = {}
        self.version = 0
        """The highest version that was read, of an event or a tombstone."""

    def read(self) -> bool:
        """Read up to the end of the log; returns whether the stream has something new."""
        end = self._log.end(EVENTS, self.partition)
        start = f"{self.stream}/"
        found = False
        for record in self._log.read(EVENTS, self.partition, self._next, end):
            number = record.key.removeprefix(start)
            if not record.key.startswith(start) or not is_version(number):
                continue
            found = True
            version = int(number)
            self.version = max(self.version, version)
            if record.value is not None:
                self._stored[version] = StoredEvent(record.key, version, record.offset, record.value, False)
            elif version in self._stored:
                self._stored[version] = self._stored[version]._replace(erased=True)
        self._next = end
        return found

    @property
    def stored(self) -> Mapping[int, StoredEvent]:
        """The events that are still in the log, by version, with those that have a tombstone."""
        return self._stored

    def state_without(self, aggregate: AnyAggregate, versions: Sequence[int]) -> object:
        """The state of the stream without the events of these versions; raises whatever a rule raises."""
        left = [each for version, each in sorted(self._stored.items()) if not each.erased and version not in versions]
        state, _ = fold(aggregate, (decode(each.value) for each in left))
        return state
