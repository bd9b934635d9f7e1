"""The sources that views are made from, and where they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eventlog.ports import EventLog
from eventlog.settings import LogSettings
from eventlog.source_positions import source_id, sources_of, topic_and_partition
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


class Noted(NamedTuple):
    """Ends of the log: bulk loads events below `bulk_ends`, by source, and patches from `patch_starts` follow."""

    patch_starts: Mapping[int, int]
    bulk_ends: Mapping[str, int]


class Ends:
    """The ends of a log, each as of the first time that it is needed: views that are built together read the same.

    If a topic has no end that can be read, the views that read it fail, and no others.
    """

    def __init__(self, log: EventLog, settings: LogSettings) -> None:
        self._log, self._settings = log, settings
        self._found: dict[str, Mapping[int, int] | Exception] = {}

    def noted(self, view: View) -> Noted:
        """The ends of `patches`, then those of the sources of `view`, see `patch_ends`. Raises LogUnavailable."""
        patch_starts = self._of(PATCHES, self._settings.patch_partitions)
        ends = {topic: self._of(topic, self._settings.partitions) for topic in view.topics}
        return Noted(patch_starts, {source_id(topic, each): end for topic in ends for each, end in ends[topic].items()})

    def _of(self, topic: str, partitions: int) -> Mapping[int, int]:
        if topic not in self._found:
            try:
                self._found[topic] = {each: self._log.end(topic, each) for each in range(partitions)}
            except Exception as error:  # noqa: BLE001 - it is raised for each view that needs them
                self._found[topic] = error
        found = self._found[topic]
        if isinstance(found, Exception):
            raise found
        return found
