"""The ids of the topics that a generation was built from: a topic that was deleted and made again has another one.

Offsets say nothing about a topic that was made again: those of a ledger may be below its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.eventlog.ports import EventLog
from headwater.eventlog.topics import PATCHES
from headwater.projections.generations.registry.sources import is_absent
from headwater.projections.view import View


def topic_ids(log: EventLog, views: Iterable[View]) -> dict[str, str]:
    """By topic, the id of `patches` and of each topic that these views read, if it exists; raises LogUnavailable."""
    topics = dict.fromkeys([PATCHES, *(topic for view in views for topic in view.topics)])
    return {topic: log.incarnation(topic) for topic in topics if not is_absent(log, topic)}


def made_again(built_from: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics that have another id now.

    built_from: see `Generation.topics`. now: the current ids; topics that are not in it do not count.
    """
    return [topic for topic, built in built_from.items() if now.get(topic, built) != built]
