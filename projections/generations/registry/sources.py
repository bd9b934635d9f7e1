"""The sources that views are made from: where they end, what is selected of them, and the ids of their topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.naming import followed_topic
from headwater.eventlog.ports import EventLog, topic_ends
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import source_id, sources_of, topic_and_partition
from headwater.eventlog.times import read_time
from headwater.eventlog.topics import CAPTURED, EVENTS, PATCHES, VIEWS, TopicSpec, view_topic
from headwater.projections.errors import RebuildFailed
from headwater.projections.table.rows import RowClass
from headwater.projections.view import View

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
POSITIONS: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")


@dataclass(frozen=True)
class Point:
    """A point in the log: an offset per source, or a time in milliseconds since 1970. text: as it was given."""

    text: str
    offsets: Mapping[str, int] | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, partitions: int) -> Point:
        """`partition:offset,…` with every partition of the log, or an RFC 3339 time with its zone.

        Raises ValueError with the expected form.
        """
        if POSITIONS.fullmatch(text):
            pairs = [tuple(map(int, numbers.split(":"))) for numbers in text.split(",")]
            offsets = {source_id(EVENTS, partition): offset for partition, offset in pairs}
            missing = set(sources_of(EVENTS, partitions)) - offsets.keys()
            if missing or len(offsets) != len(pairs) or len(offsets) > partitions:
                raise ValueError(
                    f'"{text}" must name each of the partitions 0 to {partitions - 1} once, because the log has no '
                    "order across partitions; or give a time"
                )
            return cls(text, offsets=offsets)
        try:
            time = read_time(text)
        except ValueError as error:
            raise ValueError(f'{error}; or positions, such as "0:1042,1:977"') from error
        # up to the next millisecond: records have whole milliseconds, and both ends of a range are rounded the same way
        return cls(text, time_ms=-((EPOCH - time) // MILLISECOND))


@dataclass(frozen=True)
class Selection:
    """Events from `since` on, before `until`; all by default.

    So a selection that ends at a point and one that begins there have every event once together.
    """

    since: Point | None = None
    until: Point | None = None

    @property
    def is_all(self) -> bool:
        """Whether it selects all events."""
        return self == Selection()

    def ranges(self, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """By source, the first offset to read and the one after the last, in a log with these ends."""
        first = self.since.offsets if self.since is not None and self.since.offsets else {}
        last = self.until.offsets if self.until is not None and self.until.offsets else None
        ranges = {}
        for source, end in ends.items():
            stop = end if last is None else min(end, last.get(source, end))
            ranges[source] = (min(first.get(source, 0), stop), stop)
        return ranges

    def __str__(self) -> str:
        parts = [f"from {self.since.text}" if self.since else "", f"until {self.until.text}" if self.until else ""]
        return " ".join(filter(None, parts))


ALL: Final = Selection()


def sources(views: Iterable[View], settings: LogSettings) -> list[str]:
    """The ids of all sources of some views."""
    topics = {topic: None for view in views for topic in view.topics}
    return [source for topic in topics for source in sources_of(topic, partitions_of(topic, settings))]


def partitions_of(topic: str, settings: LogSettings) -> int:
    """How many partitions the topic of a source has: that of a view has as many as `patches`."""
    return settings.patch_partitions if topic.startswith(VIEWS) else settings.partitions


def rows_topic(table: RowClass, settings: LogSettings) -> TopicSpec:
    """The topic of a captured table or a view whose rows other views read; its name is without the environment."""
    return view_topic(table.view, settings) if issubclass(table, ViewRow) else followed_topic(table, settings)


def read_by(view: View, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Those of these ranges that a view reads: it may have captured rows only."""
    return {source: part for source, part in ranges.items() if view.reads(topic_and_partition(source)[0])}


def ends_of(log: EventLog, sources: Iterable[str]) -> dict[str, int]:
    """The end of each source, 0 if it has no topic yet; raises LogUnavailable."""
    places = {source: topic_and_partition(source) for source in sources}
    absent = {topic for topic in {topic for topic, _ in places.values()} if is_absent(log, topic)}
    ends = log.ends(place for place in places.values() if place[0] not in absent)
    return {source: ends.get(place, 0) for source, place in places.items()}


def is_absent(log: EventLog, topic: str) -> bool:
    """Whether it is the topic of a captured table or a view, and the read side has not been started since a view reads
    its rows."""
    return topic.startswith((CAPTURED, VIEWS)) and not log.stored_ends(topic)


def patch_ends(log: EventLog, settings: LogSettings) -> dict[int, int]:
    """The end of each partition of `patches`; raises LogUnavailable.

    Read them before the ends of sources: then the patches of all events after those come after these.
    """
    return topic_ends(log, PATCHES, range(settings.patch_partitions))


class Noted(NamedTuple):
    """Ends of the log: bulk loads events below `bulk_ends`, by source, and patches from `patch_starts` follow.

    topics: the ids of these topics, before their ends were read.
    """

    patch_starts: Mapping[int, int]
    bulk_ends: Mapping[str, int]
    topics: Mapping[str, str] = MappingProxyType({})


class Ends:
    """The ends of a log, each as of the first time that it is needed: views that are built together read the same.

    If the end of a topic cannot be read, the views that read it fail, and no others.
    """

    def __init__(self, log: EventLog, settings: LogSettings) -> None:
        self._log, self._settings = log, settings
        self._found: dict[str, Mapping[int, int] | Exception] = {}
        self._ids: dict[str, str] = {}

    def noted(self, view: View) -> Noted:
        """The ends of `patches`, then those of the sources of `view`, see `patch_ends`.

        Raises LogUnavailable, and RebuildFailed if a captured table or a view has no topic: a broker that has just
        started may not know of one, and a view without its rows would go live.
        """
        patch_starts = self._of(PATCHES, self._settings.patch_partitions)
        ends = {topic: self._of(topic, partitions_of(topic, self._settings)) for topic in view.topics}
        for topic, ends_found in ends.items():
            if not ends_found:
                cause = f'there is no topic "{topic}": start `headwater projections` with this code, which creates it'
                raise RebuildFailed(view.name, "start", cause)
        bulk_ends = {source_id(topic, partition): end for topic in ends for partition, end in ends[topic].items()}
        return Noted(patch_starts, bulk_ends, {topic: self._ids[topic] for topic in (PATCHES, *ends)})

    def _of(self, topic: str, partitions: int) -> Mapping[int, int]:
        """By partition; empty if it is the topic of a captured table or a view, and does not exist."""
        if topic not in self._found:
            try:
                existing = range(0 if is_absent(self._log, topic) else partitions)
                if existing:
                    self._ids[topic] = self._log.incarnation(topic)
                self._found[topic] = topic_ends(self._log, topic, existing)
            except Exception as error:  # noqa: BLE001 - it is raised for each view that needs them
                self._found[topic] = error
        end = self._found[topic]
        if isinstance(end, Exception):
            raise end
        return end


def topic_ids(log: EventLog, views: Iterable[View]) -> dict[str, str]:
    """By topic, the id of `patches` and of each topic that these views read, if it exists; raises LogUnavailable."""
    topics = dict.fromkeys([PATCHES, *(topic for view in views for topic in view.topics)])
    return {topic: log.incarnation(topic) for topic in topics if not is_absent(log, topic)}


def made_again(built_from: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics that have another id now.

    built_from: see `Generation.topics`. now: the current ids; topics that are not in it do not count.
    """
    return [topic for topic, built in built_from.items() if now.get(topic, built) != built]
