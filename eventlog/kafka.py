"""The log on Kafka: one transactional producer for each owned partition, and readers without a group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from eventlog import topics
from eventlog.errors import EventLogError, Fenced, LogUnavailable
from eventlog.ports import Entry, Membership, Record, RevokedCallback
from eventlog.settings import LogSettings

TIMEOUT_S = 10.0
"""How long any one answer of Kafka may take."""
ABORT_TIMEOUT_S = 2.0
"""Short: the next owner aborts what is left open."""

EOF = KafkaError._PARTITION_EOF
FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
# a partition has no leader just after its topic was created, and while a broker restarts
NO_LEADER_CODES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)

# librdkafka waits a whole second before it fetches on when its queue was full: that halves a fast reader
READER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "fetch.queue.backoff.ms": 10,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
}
# idempotent, so that a retry inside librdkafka neither repeats nor reorders a record
WRITER = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.max.bytes": topics.MAX_RECORD_BYTES,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
}
TRANSACTIONS = {
    # an open transaction holds back every reader
    "transaction.timeout.ms": 10_000,
}
GROUP = {
    "partition.assignment.strategy": "cooperative-sticky",
    # how long a killed member's partitions wait for another one; Kafka allows no less by default
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
}

logger = logging.getLogger(__name__)
client_logger = logging.getLogger("librdkafka")


class KafkaLog:
    """The EventLog port on Kafka. Nothing connects before it is used; safe to use from several threads."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.partitions = settings.partitions
        self._lock = threading.Lock()
        self._idle_readers: list[Consumer] = []
        self._submitter: _Submitter | None = None

    def join(self, on_revoked: RevokedCallback) -> KafkaMembership:
        """See EventLog.join."""
        return KafkaMembership(self._consumer(**GROUP), self.settings.topic(topics.COMMANDS), on_revoked)

    def own(self, partition: int, member: Membership | None = None) -> KafkaWriter:
        """See EventLog.own."""
        if member is not None and not isinstance(member, KafkaMembership):
            raise TypeError(f"{member!r} is no member of a group in Kafka")
        return KafkaWriter(self, partition, member)

    def submit(self, entry: Entry, partition: int) -> Future[int]:
        """See EventLog.submit."""
        with self._lock:
            if self._submitter is None:
                self._submitter = _Submitter(self.client(**WRITER, **{"message.timeout.ms": 5_000}))
        return self._submitter.send(self.settings.topic(entry.topic), entry, partition)

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        """See EventLog.read."""
        if end is None:
            end = self.end(topic, partition)
        if start >= end:
            return
        with self.reader() as consumer:
            consumer.assign([TopicPartition(self.settings.topic(topic), partition, start)])
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                messages = consumer.consume(5_000, 0) or consumer.consume(1, 0.1)
                for message in messages:
                    offset = _offset(message, f'reading "{topic}"')
                    if offset >= end:  # also where the last offsets are markers: the end of the partition is told
                        return
                    if message.error() is None:
                        yield _record(topic, message)
                        if offset == end - 1:
                            return
                if messages:
                    deadline = time.monotonic() + TIMEOUT_S
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f'reading "{topic}"', f"nothing came for {TIMEOUT_S:g} s")

    def tail(self, topic: str, starts: Mapping[int, int]) -> KafkaTail:
        """See EventLog.tail."""
        consumer = self._consumer()
        name = self.settings.topic(topic)
        consumer.assign([TopicPartition(name, partition, start) for partition, start in starts.items()])
        return KafkaTail(topic, consumer, starts)

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end: the last stable offset, which an open transaction holds back."""
        place = TopicPartition(self.settings.topic(topic), partition)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with self.reader() as consumer:
                    return int(consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1])
            except KafkaException as error:
                if error.args[0].code() not in NO_LEADER_CODES or time.monotonic() > deadline:
                    raise _translate(error.args[0], f'asking for the end of "{topic}"', partition) from error
                time.sleep(0.05)

    def next_command(self, partition: int) -> int:
        """See EventLog.next_command: waits while a transaction with an offset is open."""
        with self.reader() as consumer, translated("asking for the committed offset", partition):
            place = TopicPartition(self.settings.topic(topics.COMMANDS), partition)
            return max(0, consumer.committed([place], timeout=TIMEOUT_S)[0].offset)

    def close(self) -> None:
        """See EventLog.close."""
        with self._lock:
            readers, self._idle_readers = self._idle_readers, []
            submitter, self._submitter = self._submitter, None
        for reader in readers:
            reader.close()
        if submitter is not None:
            submitter.close()

    @contextmanager
    def reader(self) -> Iterator[Consumer]:
        """A consumer for one question; it is kept for the next, since connecting takes longer than asking."""
        with self._lock:
            consumer = self._idle_readers.pop() if self._idle_readers else None
        # a fetch that waits for new records holds back the next question
        consumer = consumer or self._consumer(**{"fetch.wait.max.ms": 10})
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            self._idle_readers.append(consumer)

    def client(self, **config: Any) -> dict[str, Any]:
        """Client configuration of this deployment's log, with `config` on top."""
        return {
            "bootstrap.servers": self.settings.bootstrap,
            "client.id": self.settings.environment,
            "socket.timeout.ms": 6_000,
            "socket.nagle.disable": True,
            "logger": client_logger,
            "log_level": 4,
            **config,
        }

    def _consumer(self, **config: Any) -> Consumer:
        return Consumer(self.client(**READER, **{"group.id": f"{self.settings.environment}.handler"}, **config))


class KafkaWriter:
    """The owner of one partition: the one live producer with its transactional id."""

    def __init__(self, log: KafkaLog, partition: int, member: KafkaMembership | None) -> None:
        self.partition = partition
        self._log = log
        self._member = member
        transactional_id = f"{log.settings.environment}.handler.{partition}"
        self._producer = Producer(log.client(**WRITER, **TRANSACTIONS, **{"transactional.id": transactional_id}))
        with translated("taking over the partition", partition):
            self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> KafkaTransaction:
        """See PartitionWriter.begin."""
        with translated("beginning a transaction", self.partition):
            self._producer.begin_transaction()
        return KafkaTransaction(self._log.settings, self._producer, self.partition, self._group)

    def close(self) -> None:
        """See PartitionWriter.close."""
        self._producer.purge()
        self._producer.flush(0)

    def _group(self) -> Any:
        """The group's metadata, as this member knows it now; without a member, none that the group would check."""
        if self._member is not None:
            return self._member.metadata()
        with self._log.reader() as consumer:
            return consumer.consumer_group_metadata()


class KafkaTransaction:
    """An open transaction of a KafkaWriter."""

    def __init__(self, settings: LogSettings, producer: Producer, partition: int, group: Any) -> None:
        self._settings, self._producer, self._partition, self._group = settings, producer, partition, group

    def append(self, entries: Sequence[Entry]) -> list[int]:
        """See Transaction.append."""
        offsets: list[int] = []
        with translated("appending", self._partition):
            batches = [_Batch(topic, list(same)) for topic, same in groupby(entries, attrgetter("topic"))]
            for batch in batches:
                batch.produce(self._producer, self._settings, self._partition)
            deadline = time.monotonic() + TIMEOUT_S
            while not all(batch.done for batch in batches):
                if time.monotonic() > deadline:
                    raise LogUnavailable("appending", f"no answer for {TIMEOUT_S:g} s")
                self._producer.poll(0.1)
            for batch in batches:
                offsets.extend(batch.offsets())
        return offsets

    def commit(self, next_command: int | None = None) -> None:
        """See Transaction.commit."""
        with translated("committing", self._partition):
            if next_command is not None:
                place = TopicPartition(self._settings.topic(topics.COMMANDS), self._partition, next_command)
                self._producer.send_offsets_to_transaction([place], self._group(), TIMEOUT_S)
            self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        """See Transaction.abort."""
        try:
            self._producer.abort_transaction(ABORT_TIMEOUT_S)
        except KafkaException as error:
            logger.info("partition %d: the log will abort a transaction itself: %s", self._partition, error)


class _Batch:
    """Records of one topic on their way; their offsets follow each other, so two reports tell them all.

    Only the owner writes to its partition, an idempotent producer keeps the order, and a gap is an error. Where
    others write as well (dead letters), every record is reported.
    """

    def __init__(self, topic: str, entries: list[Entry]) -> None:
        self._topic, self._entries = topic, entries
        shared = topic == topics.DEAD_LETTERS
        self._reported = range(len(entries)) if shared else sorted({0, len(entries) - 1})
        self._found: dict[int, int] = {}
        self._error: KafkaError | None = None

    @property
    def done(self) -> bool:
        if self._error is not None:
            raise KafkaException(self._error)
        return len(self._found) == len(self._reported)

    def produce(self, producer: Producer, settings: LogSettings, owned: int) -> None:
        topic = settings.topic(self._topic)
        partition = 0 if self._topic == topics.DEAD_LETTERS else owned
        produce = producer.produce
        # produce_batch would be faster, but takes no timestamps
        for index, (_, key, value, timestamp_ms) in enumerate(self._entries):
            report = self._on_delivery(index) if index in self._reported else None
            produce(topic, value, key.encode(errors="surrogateescape"), partition, report, timestamp=timestamp_ms)

    def offsets(self) -> Sequence[int]:
        first, last = self._found[0], self._found[len(self._entries) - 1]
        if len(self._reported) == len(self._entries):
            return [self._found[index] for index in self._reported]
        if last - first != len(self._entries) - 1:
            raise LogUnavailable(f'appending to "{self._topic}"', "somebody else wrote to the partition")
        return range(first, last + 1)

    def _on_delivery(self, index: int) -> Any:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._found[index] = message.offset() or 0
            else:
                self._error = error

        return report


class KafkaTail:
    """Committed records of some partitions, as they come."""

    def __init__(self, topic: str, consumer: Consumer, starts: Mapping[int, int]) -> None:
        self._topic = topic
        self._consumer = consumer
        self._positions = dict(starts)

    def poll(self, limit: int, timeout_s: float) -> list[Record]:
        """See Tail.poll."""
        messages = self._consumer.consume(limit, 0)
        if not messages:
            # consume waits until it has all it may return, so the wait is for one
            messages = self._consumer.consume(1, timeout_s)
            if messages and limit > 1:
                messages += self._consumer.consume(limit - 1, 0)
        records = []
        for message in messages:
            offset = _offset(message, f'following "{self._topic}"')
            if message.error() is None:
                records.append(_record(self._topic, message))
                offset += 1
            self._positions[message.partition() or 0] = offset
        return records

    def position(self, partition: int) -> int:
        """See Tail.position."""
        return self._positions[partition]

    def close(self) -> None:
        """See Tail.close."""
        self._consumer.close()


class KafkaMembership:
    """A member of the group `<env>.handler`. It fetches nothing: it only learns which partitions are its own."""

    def __init__(self, consumer: Consumer, topic: str, on_revoked: RevokedCallback) -> None:
        self._consumer = consumer
        self._on_revoked = on_revoked
        self._assigned: frozenset[int] = frozenset()
        # kept, because asking for it waits for a `poll` that runs in another thread
        self._metadata: Any = consumer.consumer_group_metadata()
        consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def poll(self, timeout_s: float) -> frozenset[int]:
        """See Membership.poll."""
        message = self._consumer.poll(timeout_s)
        if message is not None and (error := message.error()) is not None and error.code() != EOF:
            logger.warning("group of handlers: %s", error)
        self._metadata = self._consumer.consumer_group_metadata()
        return self._assigned

    def metadata(self) -> Any:
        """What a transaction must carry for the group to check that the partition is still this member's.

        As of the last `poll`: after a rebalance, the first transactions may be refused until the next one.
        """
        return self._metadata

    def close(self) -> None:
        """See Membership.close."""
        self._consumer.close()

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)
        self._assigned |= {place.partition for place in places}

    def _revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        revoked = frozenset(place.partition for place in places)
        self._assigned -= revoked
        self._on_revoked(revoked)
        consumer.incremental_unassign(places)


class _Submitter:
    """A producer without transactions, whose reports arrive in a thread of its own."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = Producer(config)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="submitter", daemon=True)
        self._thread.start()

    def send(self, topic: str, entry: Entry, partition: int) -> Future[int]:
        stored: Future[int] = Future()
        stored.set_running_or_notify_cancel()

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                stored.set_result(message.offset() or 0)
            else:
                stored.set_exception(LogUnavailable(f'appending to "{entry.topic}"', error.str()))

        try:
            self._producer.produce(
                topic,
                key=entry.key.encode(errors="surrogateescape"),
                value=entry.value,
                partition=partition,
                timestamp=entry.timestamp_ms,
                on_delivery=report,
            )
        except (BufferError, KafkaException) as error:
            stored.set_exception(LogUnavailable(f'appending to "{entry.topic}"', str(error)))
        return stored

    def close(self) -> None:
        self._producer.flush(TIMEOUT_S)
        self._stopped.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(0.1)


@contextmanager
def translated(doing: str, partition: int) -> Iterator[None]:
    """Turn the client's errors into the log's own."""
    try:
        yield
    except BufferError as error:
        raise LogUnavailable(doing, str(error)) from error
    except KafkaException as error:
        raise _translate(error.args[0], doing, partition) from error


def _translate(error: KafkaError, doing: str, partition: int) -> EventLogError:
    return Fenced(partition) if error.code() in FENCED_CODES else LogUnavailable(doing, error.str())


def _offset(message: Message, doing: str) -> int:
    """Offset of a record, or the offset at which the partition ends for now; raises for any other message."""
    error = message.error()
    if error is not None and error.code() != EOF:
        raise LogUnavailable(doing, error.str())
    return message.offset() or 0


def _record(topic: str, message: Message) -> Record:
    key = message.key() or b""
    return Record(
        topic,
        message.partition() or 0,
        message.offset() or 0,
        key if isinstance(key, str) else key.decode(errors="surrogateescape"),
        message.value(),
        message.timestamp()[1],
    )
