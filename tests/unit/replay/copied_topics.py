"""Topics in memory, as `KafkaTopics` has them, and what kills a program between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from headwater.eventlog.kafka.copying import Bounds, CopiedRecord, FoundTopic
from headwater.replay.resealing import HELD, LIMIT

Step = Callable[[], None]


class Killed(Exception):
    """The program ends here."""


@dataclass
class Kill:
    """Kills at one step. at: its number; None: never. steps: how many there were."""

    at: int | None = None
    steps: int = 0

    def __call__(self) -> None:
        self.steps += 1
        if self.at is not None and self.steps > self.at:
            raise Killed


@dataclass
class Partition:
    records: list[CopiedRecord] = field(default_factory=list)
    first: int = 0
    end: int = 0


@dataclass
class Topic:
    id: str
    settings: dict[str, str]
    partitions: list[Partition]

    @property
    def is_held(self) -> bool:
        return self.settings.get(LIMIT) == HELD[LIMIT]


class MemoryTopics:
    """A step is one before and one after each change, and one in the middle of what is appended."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.step: Step = lambda: None
        self.during_append: Callable[[str, int], None] = lambda *_: None
        self._ids = count(1)

    def find(self, name: str) -> FoundTopic | None:
        topic = self.topics.get(name)
        return None if topic is None else FoundTopic(topic.id, len(topic.partitions), 1, dict(topic.settings))

    def create(self, name: str, partitions: int, replication: int, settings: Mapping[str, str]) -> str:
        assert name not in self.topics
        self.step()
        made = Topic(f"id{next(self._ids)}", dict(settings), [Partition() for _ in range(partitions)])
        self.topics[name] = made
        self.step()
        return made.id

    def delete(self, name: str) -> None:
        self.step()
        self.topics.pop(name, None)
        self.step()

    def alter(self, name: str, settings: Mapping[str, str | None]) -> None:
        self.step()
        for setting, value in settings.items():
            self.topics[name].settings.pop(setting, None)
            if value is not None:
                self.topics[name].settings[setting] = value
        self.step()

    def bounds(self, name: str, partitions: Sequence[int]) -> dict[int, Bounds]:
        found = [(partition, self.topics[name].partitions[partition]) for partition in partitions]
        return {number: Bounds(each.first, each.end, each.end) for number, each in found}

    def read(self, name: str, partition: int, start: int, end: int) -> Iterator[CopiedRecord]:
        place = self.topics[name].partitions[partition]
        assert place.first <= start or start >= end
        yield from [record for record in place.records if start <= record.offset < min(end, place.end)]

    def append(self, name: str, partition: int, records: Iterable[CopiedRecord]) -> None:
        self.step()
        for number, record in enumerate(records):
            if number == 2:
                self.step()
            if number == 6:
                self.during_append(name, partition)
            self.put(name, partition, record)
        self.step()

    def put(self, name: str, partition: int, record: CopiedRecord, skipped: int = 0) -> None:
        """Append a record, behind so many offsets without one."""
        assert not self.topics[name].is_held
        place = self.topics[name].partitions[partition]
        place.end += skipped
        place.records.append(record._replace(offset=place.end))
        place.end += 1

    def cut(self, name: str, firsts: Mapping[int, int]) -> None:
        self.step()
        for partition, first in firsts.items():
            place = self.topics[name].partitions[partition]
            place.first = first
            place.records = [record for record in place.records if record.offset >= first]
        self.step()
