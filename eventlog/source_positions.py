"""The sources of views, and positions in them: of an event `3:1042`, of an observation `observations/3:1042`, of a
change of a captured row `cdc.shop.public.customers/3:1042`.

A source is a partition of a topic. Its id is text: the partition's number if the topic is `events` (`3`), else topic
and number (`cdc.shop.public.customers/0`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.eventlog.envelope import Position
from headwater.eventlog.ports import EventLog
from headwater.eventlog.topics import CAPTURED, EVENTS, OBSERVATIONS


def source_id(topic: str, partition: int) -> str:
    """The id of a partition of a topic, whose name is without the environment."""
    return str(partition) if topic == EVENTS else f"{topic}/{partition}"


def topic_and_partition(source: str) -> tuple[str, int]:
    """The topic and the partition of a source; raises ValueError if it is not the id of one."""
    topic, slash, partition = source.rpartition("/")
    if not (partition.isascii() and partition.isdigit() and len(partition) < 10) or (slash and not topic):
        raise ValueError(f'"{source[:64]}" is not a source: write "3", or topic and partition, "{OBSERVATIONS}/3"')
    return topic or EVENTS, int(partition)


def in_order(source: str) -> tuple[str, int]:
    """Sorts sources by topic, then by the number of the partition, those of `events` first."""
    topic, partition = topic_and_partition(source)
    return "" if topic == EVENTS else topic, partition


def positions_text(positions: Mapping[str, int]) -> str:
    """`0:12,1:99`: an offset per source, in order."""
    return ",".join(f"{source}:{positions[source]}" for source in sorted(positions, key=in_order))


def sources_of(topic: str, partitions: int) -> list[str]:
    """The ids of all partitions of a topic."""
    return [source_id(topic, partition) for partition in range(partitions)]


def source_ends(log: EventLog, sources: Iterable[str]) -> dict[str, int]:
    """The offset after the last committed record of each source, in one question; raises LogUnavailable."""
    return {source_id(*place): end for place, end in log.ends(map(topic_and_partition, sources)).items()}


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """An offset in a source."""

    topic: str
    position: Position

    @property
    def source(self) -> str:
        """The id of its source."""
        return source_id(self.topic, self.position.partition)

    def __str__(self) -> str:
        return f"{self.source}:{self.position.offset}"

    @classmethod
    def parse(cls, text: str) -> SourcePosition:
        """Read a position, such as `3:1042`; raises ValueError with the expected forms."""
        topic, slash, place = text.rpartition("/")
        if slash and topic != OBSERVATIONS and not topic.startswith(CAPTURED):
            raise ValueError(
                f'"{text[:64]}" has an unknown source: write "3:1042" for an event, "{OBSERVATIONS}/3:1042" for an '
                f'observation, "{CAPTURED}shop.public.customers/3:1042" for a change of a captured row'
            )
        return cls(topic or EVENTS, Position.parse(place))
