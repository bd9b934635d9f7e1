"""Notices a client that is connected to Kafka, and yet joins no group or receives no records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.eventlog.kafka.client import ASK_S, EOF, client_config, reader_config
from headwater.eventlog.settings import LogSettings

IDLE_S: Final = 60.0
"""How long a client may wait for partitions or records before somebody else is asked whether there are any."""
SURE_S: Final = 10.0
"""How long it may then still take to get them itself."""

log = logging.getLogger(__name__)


class StuckClient:
    """Whether a reader of one topic is stuck: check it when nothing was received, and replace the client if it is.

    It is if its group is in order and the client has no assignment, or if another client reads a record at the client's
    position; both twice, with SURE_S between. Kafka is asked only after IDLE_S without records, by a client that exists
    for a moment. If Kafka is unavailable, nothing is stuck: see Contact.
    """

    def __init__(
        self, settings: LogSettings, topic: str, group: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """topic: without the environment. group: its id; None: the client reads given partitions."""
        self._settings, self._topic, self._group, self._clock = settings, settings.topic(topic), group, clock
        self.started()

    def started(self) -> None:
        """The client is new, or its group takes its partitions."""
        self._is_assigned = False
        self.received()

    def assigned(self) -> None:
        """The group has assigned partitions to the client, or none."""
        self._is_assigned = True
        self.received()

    def received(self) -> None:
        """The client has received records, or has moved to other positions."""
        self._next = self._clock() + IDLE_S
        self._was_missing = False

    def is_stuck(self, positions: Mapping[int, int]) -> bool:
        """Whether the client must be replaced; asks Kafka if it is time. positions: the next offset of each partition
        that is read. After it returned True, call `started`.
        """
        if self._clock() < self._next:
            return False
        was_missing, missing = self._was_missing, self._missing(positions)
        if missing is not None and was_missing:
            log.warning("a client of Kafka is stuck, replacing it: %s", missing)
            return True
        self.received()
        if missing is not None:
            self._was_missing, self._next = True, self._clock() + SURE_S
        return False

    def _missing(self, positions: Mapping[int, int]) -> str | None:
        """What the client should have got, in words."""
        if self._group is None or self._is_assigned:
            record = first_record(self._settings, self._topic, positions) if positions else None
            return record and f"it has not received record {record[1]} of {self._topic}/{record[0]}"
        if is_joining(self._settings, self._group):
            return None
        return f"it has no assignment though group {self._group} waits for nobody"


def is_joining(settings: LogSettings, group: str) -> bool:
    """Whether a group waits for members, which may take as long as one of them works; also if Kafka does not answer."""
    client = AdminClient(client_config(settings))
    try:
        described = client.describe_consumer_groups([group], request_timeout=ASK_S)[group].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:  # what new brokers answer if nobody is in it
            return False
        log.info("cannot ask for the state of group %s: %s", group, error)
        return True
    return bool(described.state == ConsumerGroupState.PREPARING_REBALANCING)


def first_record(settings: LogSettings, topic: str, positions: Mapping[int, int]) -> tuple[int, int] | None:
    """Partition and offset of a committed record at or after these positions; None if there is none, or no answer.

    topic: with the environment.
    """
    left, until = set(positions), time.monotonic() + ASK_S
    with closing(Consumer(reader_config(settings, **{"queued.min.messages": 1, "fetch.wait.max.ms": 10}))) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions.items()])
        while left and (wait_s := until - time.monotonic()) > 0:
            message = consumer.poll(wait_s)
            if message is None:
                continue
            error, partition = message.error(), message.partition() or 0
            if error is None:
                return partition, message.offset() or 0
            if error.code() == EOF:
                left.discard(partition)
    return None
