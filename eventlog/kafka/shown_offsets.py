"""Offsets that groups commit in Kafka so that ordinary tools show their lag. Nothing ever resumes from them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.eventlog.kafka.client import Contact, client_config, leave
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS

SHOW_S: Final = 5.0
"""Seconds between two commits of a client."""
REPEAT_S: Final = 3600.0
"""Seconds between two commits of places that do not change: of a group without members, Kafka forgets offsets that were
committed too long ago."""

log = logging.getLogger(__name__)

Places = Mapping[tuple[str, int], int]
"""By topic (its full name) and partition, the offset up to which a group has worked through it."""


class ShownOffsets:
    """Commits what has changed from time to time, without waiting; the first failure is logged, and none matters."""

    def __init__(self, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        """group: its id, for the log. clock: returns the time in seconds."""
        self._group, self._clock = group, clock
        self._shown: dict[tuple[str, int], int] = {}
        self._not_before = self._repeat_at = float("-inf")
        self._failed = False

    def show(self, consumer: Consumer, places: Places) -> None:
        """Commit these places with a client of the group, if it is time; call it as often as you like."""
        now_s = self._clock()
        if now_s < self._not_before:
            return
        if now_s >= self._repeat_at:
            self._shown, self._repeat_at = {}, now_s + REPEAT_S
        changed = {place: offset for place, offset in places.items() if self._shown.get(place) != offset}
        self._not_before = now_s + SHOW_S
        if not changed:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in changed.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._report(error.args[0])
        else:
            self._shown |= changed

    def reported(self, error: KafkaError | None, _: Sequence[TopicPartition]) -> None:
        """How a commit ended: a client's `on_commit`."""
        if error is not None:
            self._shown.clear()
            self._report(error)

    def _report(self, error: KafkaError) -> None:
        if not self._failed:
            log.info("cannot show Kafka's tools how far group %s is, which stops nothing: %s", self._group, error.str())
        self._failed = True


class ShownGroup:
    """A group without members, for what reads without one. It connects at its first use."""

    def __init__(self, settings: LogSettings, name: str) -> None:
        """name: of the group, behind the environment."""
        self._settings, self._group = settings, f"{settings.environment}.{name}"
        self._shown = ShownOffsets(self._group)
        self._contact = Contact(settings.topic(EVENTS))
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()

    def show(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Show these positions, by topic (its short name) and partition."""
        with self._lock:
            if self._consumer is not None and self._contact.is_lost(self._consumer):
                leave(self._consumer)
                self._consumer = None
            if self._consumer is None:
                own = {"group.id": self._group, "enable.auto.commit": False, "on_commit": self._shown.reported}
                self._consumer = Consumer(client_config(self._settings, **own))
            self._shown.show(
                self._consumer,
                {(self._settings.topic(topic), partition): at for (topic, partition), at in positions.items()},
            )
            self._consumer.poll(0)  # calls `on_commit`

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._consumer is not None:
                leave(self._consumer)
                self._consumer = None
