"""The sources that views are made from, and where they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.source_positions import sources_of, topic_and_partition
from eventlog.topics import PATCHES
from projections.view import View


def sources(views: Iterable[View], settings: LogSettings) -> list[str]:
    """The ids of all sources of some views."""
    topics = {topic: None for view in views for topic in view.topics}
    return [source for topic in topics for source in sources_of(topic, settings.partitions)]


def read_by(view: View, ranges: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Those of these ranges that a view reads: it may have captured rows only."""
    return {source: part for source, part in ranges.items() if view.reads(topic_and_partition(source)[0])}


def ends_of(log: EventLog, sources: Iterable[str]) -> dict[str, int]:
    """The end of each source; raises LogUnavailable."""
    return {source: log.end(*topic_and_partition(source)) for source in sources}


def patch_ends(log: EventLog, settings: LogSettings) -> dict[int, int]:
    """The end of each partition of `patches`; raises LogUnavailable.

    Read them before the ends of sources: then the patches of all events after those come after these.
    """
    return {partition: log.end(PATCHES, partition) for partition in range(settings.patch_partitions)}
