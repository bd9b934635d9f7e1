"""What `replay reseal` writes: sealed records of copied topics, and of process instances and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Final

from headwater.commands.handling.command_task import heartbeat
from headwater.commands.owning.resume_offset import follow_copy
from headwater.commands.reacting.instance_store import PARKED_PREFIX
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.kafka.copying import CopiedRecord
from headwater.eventlog.ports import PROCESSES as OWNER
from headwater.eventlog.ports import ROUTER, Entry, EventLog, Record, abort_on_error
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, PROCESSES
from headwater.projections.generations.registry.registry import Generations
from headwater.replay.clear_values import ClearValues, Unfit
from headwater.replay.errors import CannotReseal

STORED_S: Final = 60.0
TRANSACTION_RECORDS: Final = 100
"""Of one transaction, so that it stays small also with large states."""


class ResealedContents:
    """What the copy of a topic has in place of its records, and who refers to the topic."""

    def __init__(self, values: ClearValues, log: EventLog, generations: Generations) -> None:
        self._values, self._log, self._generations = values, log, generations

    def sealed(self, value: bytes | None) -> bytes | None:
        """A record's value without values in clear; raises CannotReseal."""
        try:
            return self._values.sealed(value)
        except Unfit as error:
            raise CannotReseal(EVENTS, f"a record cannot be sealed: {error}") from error

    def difference(self, before: bytes | None, after: bytes | None) -> str:
        """Why a value is not the same with sealed values; empty if it is."""
        return self._values.difference(before, after)

    def filler(self, topic: str, partition: int, timestamp_ms: int) -> CopiedRecord:
        """A heartbeat of this time, as those of this topic are; its offset does not matter."""
        return _filler(topic, partition, timestamp_ms)

    def follow(self, topic: str, made_from: str, copy: str) -> None:
        """Let what belongs to the id of a topic belong to that of its copy. It may be repeated."""
        if topic == ROUTER.reads:
            follow_copy(self._log, ROUTER, made_from, copy)
        self._generations.follow_copy(topic, made_from, copy)


@lru_cache(maxsize=64)
def _filler(topic: str, partition: int, timestamp_ms: int) -> CopiedRecord:
    key, value = heartbeat_key(partition).encode(), b"{}"
    if topic == EVENTS:
        value = heartbeat(partition, datetime.fromtimestamp(timestamp_ms / 1000, UTC)).value or b""
    return CopiedRecord(0, key, value, None, timestamp_ms)


@dataclass
class OtherCopies:
    """Records with values in clear that are not copied: their keys get a new record, and compaction removes the old.

    instances, letters, waiting: how many process instances, dead letters, and records that wait for an instance. The
    last ones are not sealed, because they must stay in their order; they go when they are handled.
    """

    values: ClearValues
    log: EventLog
    instances: int = 0
    letters: int = 0
    waiting: int = 0

    def look(self) -> None:
        """Count them."""
        for partition in range(self.log.partitions):
            self.instances += len(self._places(PROCESSES, partition, self.values.has_clear_state))
            self.waiting += len(self._places(PROCESSES, partition, _waits(self.values)))
        self.letters = len(self._places(DEAD_LETTERS, 0, self.values.has_clear_letter))

    def seal(self) -> None:
        """Write them again, sealed. No owner may run."""
        for partition in range(self.log.partitions):
            sealed = self._sealed_instances(partition)
            while batch := list(islice(sealed, TRANSACTION_RECORDS)):
                entries = [Entry(PROCESSES, key, value, now_ms()) for key, value in batch]
                with closing(self.log.own(partition, OWNER)) as writer, abort_on_error(writer.begin()) as begun:
                    begun.append(entries)
                    begun.commit()
        for record in self._clear(DEAD_LETTERS, 0, self.values.has_clear_letter):
            if (letter := self.values.sealed_letter(record.value or b"")) is not None:
                self.log.submit(Entry(DEAD_LETTERS, record.key, letter, now_ms()), 0).result(STORED_S)

    def lines(self) -> Iterator[str]:
        """What was found, for a user."""
        if self.instances:
            yield f"{self.instances:,} process instances have values in clear"
        if self.letters:
            yield f"{self.letters:,} dead letters have values in clear"

    def to_json(self) -> dict[str, int]:
        """For `--json`."""
        return {"instances": self.instances, "letters": self.letters, "waiting": self.waiting}

    def _sealed_instances(self, partition: int) -> Iterator[tuple[str, bytes]]:
        for record in self._clear(PROCESSES, partition, self.values.has_clear_state):
            time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            try:
                if (sealed := self.values.sealed_state(record.key, record.value or b"", time)) is not None:
                    yield record.key, sealed
            except Unfit as error:
                raise CannotReseal(PROCESSES, f'"{record.key}": {error}: end the instance') from error

    def _clear(self, topic: str, partition: int, is_clear: Callable[[str, bytes], bool]) -> Iterator[Record]:
        """The records of a partition that have values in clear, of those that compaction keeps."""
        places = self._places(topic, partition, is_clear)
        end = max(places.values(), default=-1) + 1
        for record in self.log.read(topic, partition, min(places.values(), default=0), end):
            if places.get(record.key) == record.offset:
                yield record

    def _places(self, topic: str, partition: int, is_clear: Callable[[str, bytes], bool]) -> dict[str, int]:
        """By key, the offset of such a record."""
        places: dict[str, int] = {}
        for record in self.log.read(topic, partition, 0):
            if record.value is not None and is_clear(record.key, record.value):
                places[record.key] = record.offset
            else:
                places.pop(record.key, None)
        return places


def _waits(values: ClearValues) -> Callable[[str, bytes], bool]:
    return lambda key, value: key.startswith(PARKED_PREFIX) and values.has_clear(value)
