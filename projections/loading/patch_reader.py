"""Reads the records of `patches` for a loader, which says from where."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.client import Contact, client_config, leave, translated
from headwater.eventlog.kafka.shown_offsets import ShownOffsets
from headwater.eventlog.kafka.stuck_client import StuckClient
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.limits import BATCH_RECORDS

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
IDLE_POLL_S: Final = 0.3
"""How long each poll waits once nothing has come for POLL_S: records end it at once."""
KAFKA_TIMEOUT_S: Final = 10.0
LOADERS: Final = "loader"
"""Groups of loaders begin with this."""
FOREVER_MS: Final = 24 * 60 * 60 * 1000
IDLE_FETCH_MS: Final = 500
"""How long the broker keeps a fetch if nothing comes; it answers at once if something does. With a tenth of this time,
idle loaders and the live query cost it more than anything else.
"""


class PatchReader:
    """Reads the partitions of `patches` that its group assigns to it, or those that it is given.

    It shows its positions to Kafka's tools, and never asks Kafka for them. It reads nothing until `move_to` says from
    where, and again after `must_reposition` has become true: its partitions have changed, its client was replaced, or
    the loader has set it.
    """

    def __init__(self, settings: LogSettings, store: str, code: str, partitions: Sequence[int] | None) -> None:
        """store, code: see Loader. partitions: those to read; None: shared with the group."""
        self.must_reposition = True
        self._positions: dict[int, int] = {}
        self._is_idle = False
        self._owned = set(partitions or ())
        self._settings, self._shares = settings, partitions is None
        self._config = client_config(
            settings,
            **{
                "group.id": f"{settings.environment}.{LOADERS}.{store}.{code}",
                "client.id": f"{settings.environment}.{LOADERS}.{store}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                # a broker may not know a topic that was just created; the default asks again after five minutes
                "topic.metadata.refresh.interval.ms": 10_000,
                # a store may be unavailable for hours: a loader that waits for it is not dead
                "max.poll.interval.ms": FOREVER_MS,
                "session.timeout.ms": 6_000,
                "fetch.wait.max.ms": IDLE_FETCH_MS,
                "fetch.queue.backoff.ms": 10,
                "queued.min.messages": 20_000,
            },
        )
        self._shown = ShownOffsets(self._config["group.id"])
        self._config["on_commit"] = self._shown.reported
        self._contact = Contact(settings.topic(PATCHES))
        self._stuck = StuckClient(settings, PATCHES, self._config["group.id"] if self._shares else None)
        self._connect()

    @property
    def owned(self) -> Set[int]:
        """The partitions to read."""
        return self._owned

    @property
    def positions(self) -> Mapping[int, int]:
        """By partition that is read, the next offset, once `advance` was called with it; another thread may read it."""
        return self._positions

    def poll(self) -> list[Message]:
        """The next records of these partitions, none of them before its position; waits for up to POLL_S.

        If the last poll found none, it waits for up to IDLE_POLL_S; not for a rebuild, which ends soon.
        """
        if self._shares:
            topic = self._settings.topic(PATCHES)
            self._shown.show(self._consumer, {(topic, partition): at for partition, at in self._positions.items()})
        # `consume` waits for the whole number of records: take the first, then those that are there already
        first = self._consumer.poll(IDLE_POLL_S if self._is_idle else POLL_S)
        self._is_idle = first is None and self._shares
        if first is None:
            self.reconnect_if_lost()
            return []
        self._contact.answered()
        records = [first, *self._consumer.consume(BATCH_RECORDS, 0)]
        for record in records:
            error = record.error()
            if error is not None and error.fatal():
                raise KafkaException(error)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                log.warning("reading patches: %s", error)
        # records of a partition that was given up, or read before a rewind, are read again
        expected = [record for record in records if record.error() is None and self._expected(record)]
        if expected:
            self._stuck.received()
        return expected

    def advance(self, partition: int, next_offset: int) -> None:
        """Everything before `next_offset` is in the store."""
        self._positions[partition] = next_offset

    def pause(self) -> None:
        """Read nothing until `move_to`: a fetch that waits delays every question, which has the same connection."""
        self._consumer.assign([])

    def move_to(self, positions: dict[int, int]) -> None:
        """Read these partitions, each from its offset; with none, nothing is read."""
        self._positions = positions
        topic = self._settings.topic(PATCHES)
        # without a generation nothing is assigned: a pause would remember its place, and a resume could return to it
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions.items()])
        self._stuck.received()
        self.must_reposition = False

    def first_kept(self, partition: int) -> int:
        """The lowest offset of a partition that retention has left; raises LogUnavailable."""
        return self._bounds(partition)[0]

    def end(self, partition: int) -> int:
        """The end of a partition; raises LogUnavailable."""
        return self._bounds(partition)[1]

    def _bounds(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._settings.topic(PATCHES), partition)
        with translated('asking for the start and end of "patches"', partition):
            marks = self._consumer.get_watermark_offsets(place, timeout=KAFKA_TIMEOUT_S)
        if marks is None:
            raise LogUnavailable(f'asking for the start and end of "patches" {partition}', "no answer in time")
        return int(marks[0]), int(marks[1])

    def reconnect_if_lost(self) -> None:
        """Replace the client if no broker has answered it for long, or if it does not get what there is."""
        if not self._contact.is_lost(self._consumer) and not self._stuck.is_stuck(self._positions):
            return
        leave(self._consumer)
        if self._shares:
            self._owned, self._positions = set(), {}
        self._connect()
        self.must_reposition = True

    def close(self) -> None:
        """Leave the group."""
        leave(self._consumer)

    def _connect(self) -> None:
        self._consumer = Consumer(self._config)
        self._stuck.started()
        if self._shares:
            self._consumer.subscribe(
                [self._settings.topic(PATCHES)],
                on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked,
            )  # fmt: skip

    def _expected(self, record: Message) -> bool:
        position = self._positions.get(record.partition() or 0)
        if position is None or self.must_reposition:
            return False
        if (record.offset() or 0) < position:  # Kafka has no such position any more, and began anew
            log.warning("patches %s begins again at %s, before %s", record.partition(), record.offset(), position)
            self.must_reposition = True
            return False
        return True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is self._consumer:  # and not one that was left behind
            self._owned = {partition.partition for partition in partitions}
            self._stuck.assigned()
            self.must_reposition = True

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        if consumer is self._consumer:
            self._owned, self._positions = set(), {}
            self._stuck.started()
        consumer.unassign()
