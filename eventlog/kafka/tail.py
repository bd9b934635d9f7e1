"""Follows topics on Kafka: committed records as they arrive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.eventlog.errors import LogUnavailable, abort_command
from headwater.eventlog.kafka.admin import ends
from headwater.eventlog.kafka.client import ASK_S, Contact, offset_of, record_of, translated
from headwater.eventlog.ports import Record
from headwater.eventlog.settings import LogSettings

OPEN_S: Final = 60.0
"""Kafka aborts a transaction that is open for 10 s, and checks every 10 s."""

TAIL: Final = {"fetch.wait.max.ms": 1_000}
"""The broker keeps a fetch for so long if nothing comes, and answers it at once if something does. It is twice the
usual time, which is for clients that ask other questions or change their partitions: these wait for the fetch.
"""

logger = logging.getLogger(__name__)


class KafkaTail:
    """Committed records of some partitions, as they arrive."""

    def __init__(
        self,
        new_consumer: Callable[..., Consumer],
        settings: LogSettings,
        topic: str,
        starts: Mapping[int, int],
        *,
        rereads: bool = True,
    ) -> None:
        """See EventLog.tail."""
        self._rereads = rereads
        self._new_consumer, self._settings, self._topic = new_consumer, settings, topic
        self._full_name = settings.topic(topic)
        self._positions = dict(starts)
        self._contact = Contact(self._full_name)
        self._since: dict[int, tuple[int, float]] = {}
        """By partition, a position with an uncommitted record after it, and since when."""
        self._start()

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        messages = self._consumer.consume(limit, 0)
        if not messages:
            # consume waits until it has all that it may return, so the wait is for one record
            messages = self._consumer.consume(1, timeout_s)
            if messages and limit > 1:
                messages += self._consumer.consume(limit - 1, 0)
        if messages:
            self._contact.answered()
        elif self._contact.is_lost(self._consumer):
            self._consumer.close()
            self._start()
        else:
            self._look_for_open_transactions()
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                record = record_of(self._topic, message)
                records.append(record)
                self._positions[record.partition] = record.offset + 1
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._reset_position(message.partition() or 0)
            else:
                self._positions[message.partition() or 0] = offset_of(message, f'following "{self._topic}"')
        return records

    def position(self, partition: int) -> int:
        return self._positions[partition]

    def close(self) -> None:
        self._consumer.close()

    def _start(self) -> None:
        # deleted unread records must be reported
        self._consumer = self._new_consumer(**{"auto.offset.reset": "error"})
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(self._full_name, partition, at) for partition, at in self._positions.items()]
        )

    def _reset_position(self, partition: int) -> None:
        """Continue at the first record if the position is not in the log; raises LogUnavailable if records are lost."""
        position = self._positions[partition]
        doing = f'following "{self._topic}"'
        with translated(doing, partition):
            first, _ = self._consumer.get_watermark_offsets(TopicPartition(self._full_name, partition), timeout=ASK_S)
        if 0 < position < first:
            raise LogUnavailable(doing, f"offsets {position} to {first - 1} of partition {partition} were deleted")
        if position > first and not self._rereads:
            raise LogUnavailable(doing, f"partition {partition} does not have offset {position}, which was read")
        if position > first:
            logger.error(
                'partition %d of "%s" ends before offset %d, which was read: Kafka lost records; reading again from '
                "offset %d", partition, self._full_name, position, first,
            )  # fmt: skip
        self._positions[partition] = first
        self._assign()

    def _look_for_open_transactions(self) -> None:
        """Log an error if a transaction of a partition is open for too long: nothing after it is read."""
        now = time.monotonic()
        for partition, position in self._positions.items():
            place = TopicPartition(self._full_name, partition)
            try:
                _, end = self._consumer.get_watermark_offsets(place, cached=True)
            except KafkaException:  # nothing was fetched yet
                end = position
            if end <= position:
                self._since.pop(partition, None)
                continue
            at, since = self._since.setdefault(partition, (position, now))
            if at != position:
                self._since[partition] = position, now
            elif now - since >= OPEN_S:
                self._since[partition] = position, now
                self._report_open(partition)

    def _report_open(self, partition: int) -> None:
        try:
            stable, stored = ends(self._settings, [self._topic], partition)
        except LogUnavailable:
            return  # checked again later
        at = stable[self._topic]
        if at < stored[self._topic]:
            logger.error(
                'partition %d of "%s" has had an open transaction at offset %d for %.0f s, so nothing later is read; '
                "Kafka has lost its end; end it with: %s",
                partition, self._full_name, at, OPEN_S, abort_command(self._full_name, partition, at),
            )  # fmt: skip
