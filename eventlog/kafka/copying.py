"""Whole topics on Kafka, for a copy of one that has the same records at the same offsets. See `replay/resealing.py`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.admin import ABSENT_CODES, offsets
from headwater.eventlog.kafka.client import WRITER, client_config, reader_config
from headwater.eventlog.settings import LogSettings

ANSWER_S: Final = 60.0
"""How long Kafka may take to answer a request, and to do what it has accepted."""
SILENCE_S: Final = 60.0
"""How long nothing may come while records are read or stored."""
BATCH: Final = 5_000

COPIER: Final = {
    **WRITER,
    "linger.ms": 20,
    "batch.num.messages": 10_000,
    "compression.type": "lz4",  # what fills gaps takes next to no space then
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
}


class FoundTopic(NamedTuple):
    """A topic that exists. settings: those that differ from the brokers'."""

    id: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


class Bounds(NamedTuple):
    """Of a partition. end: of committed records; stored: of all, which is higher while a transaction is open."""

    first: int
    end: int
    stored: int


class CopiedRecord(NamedTuple):
    """A record as it is copied. headers: as Kafka's client has them."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp_ms: int


class KafkaTopics:
    """See `replay.resealing.Topics`. Names are without the environment."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._admin = AdminClient(client_config(settings, **{"socket.timeout.ms": 60_000}))

    def find(self, name: str) -> FoundTopic | None:
        """The topic with this name; None if there is none."""
        full = self._settings.topic(name)
        with _translated(f'looking for "{full}"'):
            described = self._admin.describe_topics(TopicCollection([full]), request_timeout=ANSWER_S)[full]
            try:
                topic = described.result()
            except KafkaException as error:
                if error.args[0].code() in ABSENT_CODES:
                    return None
                raise
            entries = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, full)], request_timeout=ANSWER_S)
            topic_found = next(iter(entries.values())).result()
        own = {
            name: str(entry.value)
            for name, entry in topic_found.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        return FoundTopic(str(topic.topic_id), len(topic.partitions), len(topic.partitions[0].replicas), own)

    def create(self, name: str, partitions: int, replication: int, settings: Mapping[str, str]) -> str:
        """Create a topic, and return its id once all its partitions have leaders."""
        full = self._settings.topic(name)
        with _translated(f'creating "{full}"'):
            topic = NewTopic(full, partitions, replication, config=dict(settings))
            self._admin.create_topics([topic], operation_timeout=ANSWER_S)[full].result()
        deadline = time.monotonic() + ANSWER_S
        while True:
            metadata = self._admin.list_topics(timeout=ANSWER_S).topics.get(full)
            leaders = [partition.leader for partition in metadata.partitions.values()] if metadata else []
            if len(leaders) == partitions and min(leaders) >= 0 and (created := self.find(name)) is not None:
                return created.id
            _wait(deadline, f'creating "{full}"', "it has no leader")

    def delete(self, name: str) -> None:
        """Delete a topic, if it exists, and return when it is gone."""
        full = self._settings.topic(name)
        with _translated(f'deleting "{full}"'):
            try:
                self._admin.delete_topics([full], operation_timeout=ANSWER_S)[full].result()
            except KafkaException as error:
                if error.args[0].code() not in ABSENT_CODES:
                    raise
        deadline = time.monotonic() + ANSWER_S
        while full in self._admin.list_topics(timeout=ANSWER_S).topics:
            _wait(deadline, f'deleting "{full}"', "it is still there")

    def alter(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None: what the brokers have."""
        full = self._settings.topic(name)
        entries = [
            ConfigEntry(
                setting,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for setting, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, full, incremental_configs=entries)
        with _translated(f'changing settings of "{full}"'):
            for future in self._admin.incremental_alter_configs([resource], request_timeout=ANSWER_S).values():
                future.result()

    def bounds(self, name: str, partitions: Sequence[int]) -> dict[int, Bounds]:
        """The bounds of these partitions."""
        full = self._settings.topic(name)
        places = [(full, partition) for partition in partitions]
        first, last = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        with _translated(f'asking for the ends of "{full}"'):
            firsts = offsets(self._admin, places, first, ANSWER_S)
            ends = offsets(self._admin, places, last, ANSWER_S)
            stored = offsets(self._admin, places, last, ANSWER_S, IsolationLevel.READ_UNCOMMITTED)
        return {place[1]: Bounds(firsts[place], ends[place], stored[place]) for place in places}

    def read(self, name: str, partition: int, start: int, end: int) -> Iterator[CopiedRecord]:
        """The committed records from `start` to `end` (exclusive)."""
        if start >= end:
            return
        full, deadline = self._settings.topic(name), time.monotonic() + SILENCE_S
        config = reader_config(self._settings, **{"auto.offset.reset": "error", "fetch.wait.max.ms": 50})
        with closing(Consumer(config)) as consumer:
            consumer.assign([TopicPartition(full, partition, start)])
            while True:
                messages = consumer.consume(BATCH, 0) or consumer.consume(1, 0.5)
                for message in messages:
                    error, offset = message.error(), message.offset() or 0
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise LogUnavailable(f'reading "{full}"', error.str())
                    if offset >= end:
                        return
                    if error is None:
                        yield CopiedRecord(
                            offset, _key(message.key()), message.value(), message.headers(), message.timestamp()[1]
                        )
                        if offset == end - 1:
                            return
                if messages:
                    deadline = time.monotonic() + SILENCE_S
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f'reading "{full}"', f"nothing came for {SILENCE_S:g} s")

    def append(self, name: str, partition: int, records: Iterable[CopiedRecord]) -> None:
        """Append records in their order, each with its key, headers and time; returns when all are stored."""
        full, refused = self._settings.topic(name), list[str]()
        doing = f'copying to "{full}"'
        producer = Producer(client_config(self._settings, **COPIER))

        def reported(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error.str())

        for record in records:
            fields: dict[str, Any] = {
                "partition": partition,
                "timestamp": max(1, record.timestamp_ms),
                "on_delivery": reported,
            }
            if record.headers:
                fields["headers"] = record.headers
            deadline = time.monotonic() + SILENCE_S
            while True:
                try:
                    producer.produce(full, record.value, record.key, **fields)
                    break
                except BufferError:
                    producer.poll(0.1)
                    if refused or time.monotonic() > deadline:
                        raise LogUnavailable(doing, refused[0] if refused else "nothing is stored") from None
                except KafkaException as error:
                    raise LogUnavailable(doing, error.args[0].str()) from error
            producer.poll(0)
            if refused:
                raise LogUnavailable(doing, refused[0])
        left = producer.flush(SILENCE_S)
        if left or refused:
            raise LogUnavailable(doing, refused[0] if refused else f"no answer for {SILENCE_S:g} s")

    def cut(self, name: str, firsts: Mapping[int, int]) -> None:
        """Delete the records of each partition before its first offset."""
        full = self._settings.topic(name)
        places = [TopicPartition(full, partition, first) for partition, first in firsts.items() if first]
        if not places:
            return
        with _translated(f'deleting the first records of "{full}"'):
            for future in self._admin.delete_records(places, request_timeout=ANSWER_S).values():
                future.result()

    def members(self) -> dict[str, int]:
        """By consumer group of the deployment, how many members it has; without those that have none."""
        prefix = self._settings.topic("")
        with _translated("asking for consumer groups"):
            listed = self._admin.list_consumer_groups(request_timeout=ANSWER_S).result().valid
            names = [
                group.group_id
                for group in listed
                if group.group_id.startswith(prefix) and group.state is not ConsumerGroupState.EMPTY
            ]
            if not names:
                return {}
            described = self._admin.describe_consumer_groups(names, request_timeout=ANSWER_S)
            members = {name: len(future.result().members) for name, future in described.items()}
        return {name: number for name, number in sorted(members.items()) if number}


def _key(key: str | bytes | None) -> bytes | None:
    return key.encode(errors="surrogateescape") if isinstance(key, str) else key


def _wait(deadline: float, doing: str, reason: str) -> None:
    if time.monotonic() > deadline:
        raise LogUnavailable(doing, reason)
    time.sleep(0.05)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise LogUnavailable(doing, error.args[0].str()) from error
