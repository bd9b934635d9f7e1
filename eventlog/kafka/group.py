"""Membership in a Kafka group, which divides the partitions of a topic among the processes of one role."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, TopicPartition

from headwater.eventlog.kafka.client import EOF, Contact, leave
from headwater.eventlog.kafka.shown_offsets import ShownOffsets
from headwater.eventlog.ports import RevokedCallback

logger = logging.getLogger(__name__)


class KafkaMembership:
    """A member of a role's group. It fetches no records: it only receives assignments of partitions."""

    def __init__(
        self, new_consumer: Callable[..., Consumer], group: str, topic: str, on_revoked: RevokedCallback
    ) -> None:
        """group: its id. topic: the full name of the one that is shared."""
        self._new_consumer, self._topic = new_consumer, topic
        self._shown = ShownOffsets(group)
        self._on_revoked = on_revoked
        self._contact = Contact(topic)
        self._assigned: frozenset[int] = frozenset()
        self._consumer = self._join()

    def poll(self, timeout_s: float) -> frozenset[int]:
        message = self._consumer.poll(timeout_s)
        if message is not None and (error := message.error()) is not None and error.code() != EOF:
            logger.warning('group "%s": %s', self._topic, error)
        if self._contact.is_lost(self._consumer):
            self.close()
            self._consumer, self._assigned = self._join(), frozenset()
        return self._assigned

    def show(self, positions: Mapping[int, int]) -> None:
        own = {(self._topic, partition): at for partition, at in positions.items() if partition in self._assigned}
        self._shown.show(self._consumer, own)

    def close(self) -> None:
        given_up, self._assigned = self._assigned, frozenset()
        self._on_revoked(given_up)
        leave(self._consumer)

    def _join(self) -> Consumer:
        joining = self._new_consumer(on_commit=self._shown.reported)
        joining.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)
        return joining

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)
        if consumer is self._consumer:  # and not one that was left behind
            self._assigned |= {place.partition for place in places}

    def _revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        revoked = self._assigned & {place.partition for place in places}
        if revoked and consumer is self._consumer:
            self._assigned -= revoked
            self._on_revoked(revoked)
        consumer.incremental_unassign(places)

    def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        logger.warning(
            'group "%s": Kafka has not heard of this member for too long, and gave its partitions to others',
            self._topic,
        )
        self._revoke(consumer, places)
