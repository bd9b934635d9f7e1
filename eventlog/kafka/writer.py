"""Appending to Kafka: the transactional owner of a partition, the submitter of commands, and the appender of the few
records beside commands and events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.client import (
    ABORT_TIMEOUT_S,
    CONTACT_TIMEOUT_S,
    SENT_ONCE_S,
    TIMEOUT_S,
    WRITER,
    Contact,
    client_config,
    translated,
)
from headwater.eventlog.ports import NEXT_OFFSET, Entry, Failed, Role
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import FIRST_RECORD_MS, now_ms

# an open transaction delays every reader
TRANSACTION_TIMEOUT_MS = 10_000
SHARED_TOPICS = topics.BY_KEY | topics.SINGLE
"""Topics to which others append as well."""
APPENDER = {**WRITER, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
"""An idempotent producer takes half a second and more before its first record, which whoever waits for a command would
feel. So a record may come twice after an error, in order: write only records for which that makes no difference."""

Stored = Callable[[int], None]

logger = logging.getLogger(__name__)


class TransactionalProducer:
    """The only live producer with its transactional id: each new one fences those before it, in any process.

    librdkafka speaks the older protocol of transactions, in which the epoch stays the same from one transaction to the
    next. So a request to commit that was sent twice, and arrives for the second time during the next transaction,
    commits what this has written by then (https://github.com/confluentinc/librdkafka/issues/5423). After a commit that
    may have been sent twice, `begin` takes a new epoch: the broker refuses what comes late with the old one.
    """

    def __init__(self, settings: LogSettings, transactional_id: str, topic: str) -> None:
        """topic: an existing topic, which the producer asks for when it connects. Raises KafkaException."""
        transactional = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._config, self._topic = client_config(settings, **WRITER, **transactional), topic
        self._transactional_id = transactional_id
        self._sent_once = True
        self.client = self._connected()

    def begin(self) -> None:
        """Begin a transaction; raises KafkaException, as all methods but `close`."""
        if not self._sent_once:
            logger.debug("%s: taking a new epoch after a commit that may have been sent twice", self._transactional_id)
            self.close()
            self.client, self._sent_once = self._connected(), True
        self.client.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction, all of whose records are stored."""
        began = time.monotonic()
        self._sent_once = False
        self.client.commit_transaction(TIMEOUT_S)
        self._sent_once = time.monotonic() - began < SENT_ONCE_S

    def abort(self) -> None:
        """Abort the transaction. No other may follow, since this request may be sent twice as well."""
        self.client.abort_transaction(ABORT_TIMEOUT_S)

    def close(self) -> None:
        """Forget what was not sent."""
        try:
            self.client.purge()
            self.client.flush(0)
        except KafkaException as error:  # it was fenced, so there is nothing to abort
            logger.info("%s: closing its producer: %s", self._transactional_id, error)

    def _connected(self) -> Producer:
        """A new producer, with the next epoch.

        It connects before that: without a connection, librdkafka looks again only half a second later. The first
        answer names the brokers, the second one comes from one of them.
        """
        client = Producer(self._config)
        with suppress(KafkaException):  # taking the epoch fails with the reason
            for _ in range(2):
                client.list_topics(self._topic, timeout=CONTACT_TIMEOUT_S)
        client.init_transactions(TIMEOUT_S)
        return client


class KafkaWriter:
    """The owner of one partition.

    If another owner has taken the partition over, a new epoch of this one's producer would fence it; but then the
    records of the next transaction have other offsets than predicted, so `commit` fails.
    """

    def __init__(self, settings: LogSettings, partition: int, role: Role) -> None:
        self.partition = partition
        self._settings, self._role = settings, role
        self._ends: dict[str, int] = {}
        transactional_id = f"{settings.environment}.{role.name}.{partition}"
        with translated("taking over the partition", partition):
            self._producer = TransactionalProducer(settings, transactional_id, settings.topic(role.owns[0]))

    def begin(self) -> KafkaTransaction:
        with translated("beginning a transaction", self.partition):
            self._producer.begin()
        return KafkaTransaction(self._settings, self._producer, self.partition, self._role, self._ends)

    def close(self) -> None:
        self._producer.close()


class KafkaTransaction:
    """An open transaction of a KafkaWriter.

    Nobody else appends to the owner's topics, except for heartbeats to some. So once it knows the ends of the others,
    it predicts the offsets of its next records, and appends them without waiting; `commit` waits, and fails if a
    record has another offset.
    """

    def __init__(
        self, settings: LogSettings, producer: TransactionalProducer, partition: int, role: Role, ends: dict[str, int]
    ) -> None:
        """ends: the predicted offset of the next record, by topic of the owner, if known; it is updated."""
        self._settings, self._producer, self._partition, self._role = settings, producer, partition, role
        self._ends = ends
        self._batches: list[_Batch] = []

    def append(self, entries: Sequence[Entry]) -> list[int]:
        shared = {*SHARED_TOPICS, *self._role.with_heartbeats}
        with translated("appending", self._partition):
            batches = [
                _Batch(topic, list(same), self._ends.get(topic), shared=topic in shared)
                for topic, same in groupby(entries, attrgetter("topic"))
            ]
            for batch in batches:
                batch.produce(self._producer.client, self._settings, self._partition)
            self._wait_for([batch for batch in batches if not batch.predicted])
        self._batches += batches
        self._ends |= {batch.topic: batch.offsets[-1] + 1 for batch in batches if not batch.shared}
        return [offset for batch in batches for offset in batch.offsets]

    def commit(self, next_offset: int | None = None) -> None:
        if next_offset is not None:
            # our own record instead of the group's offset: one atomic log, and two round trips fewer
            self.append([Entry(self._role.owns[0], NEXT_OFFSET, b"%d" % next_offset, now_ms())])
        with translated("committing", self._partition):
            self._wait_for(self._batches)
            self._producer.commit()
        for topic in {batch.topic for batch in self._batches if not batch.shared}:
            self._ends[topic] += 1  # the commit marker has an offset too

    def abort(self) -> None:
        self._ends.clear()
        try:
            self._producer.abort()
        except KafkaException as error:
            logger.info("partition %d: the log will abort a transaction itself: %s", self._partition, error)

    def _wait_for(self, batches: Sequence[_Batch]) -> None:
        """Wait until Kafka has stored them at their predicted offsets."""
        deadline = time.monotonic() + TIMEOUT_S
        while not all(batch.stored for batch in batches):
            if time.monotonic() > deadline:
                raise LogUnavailable("appending", f"no answer for {TIMEOUT_S:g} s")
            self._producer.client.poll(0.1)
        for batch in batches:
            batch.check()


class _Batch:
    """Records of one topic being sent; their offsets are consecutive, so two reports suffice for all.

    Only the owner writes to its partition, an idempotent producer keeps the order, and a gap is an error. In topics to
    which others append as well (dead letters, commands, heartbeats), every record is reported.
    """

    def __init__(self, topic: str, entries: list[Entry], first: int | None, *, shared: bool) -> None:
        """first: the offset of the first record, if known. shared: whether others append to the topic."""
        self.topic, self._entries, self._first, self.shared = topic, entries, first, shared
        self._reports = len(entries) if self.shared else min(2, len(entries))
        self._found: dict[int, int] = {}
        self._error: KafkaError | None = None

    @property
    def predicted(self) -> bool:
        """Whether its offsets are predicted."""
        return self._first is not None

    @property
    def stored(self) -> bool:
        """Whether all needed reports have arrived; raises KafkaException if Kafka refused a record."""
        if self._error is not None:
            raise KafkaException(self._error)
        return len(self._found) == self._reports

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record, once stored or predicted."""
        if self.shared:
            return [self._found[index] for index in range(len(self._entries))]
        first = self._found[0] if self._first is None else self._first
        return range(first, first + len(self._entries))

    def check(self) -> None:
        """Raise LogUnavailable if a stored record has another offset than predicted."""
        offsets = self.offsets
        if any(offsets[index] != number for index, number in self._found.items()):
            raise LogUnavailable(f'appending to "{self.topic}"', "another process wrote to the partition")

    def produce(self, producer: Producer, settings: LogSettings, owned: int) -> None:
        """Send them; the reports arrive during `producer.poll`."""
        topic, shared, last = settings.topic(self.topic), self.shared, len(self._entries) - 1
        produce = producer.produce
        # produce_batch would be faster, but takes no timestamps; arguments by name take 0.7 µs longer
        for index, entry in enumerate(self._entries):
            key = entry.key
            report = self._on_delivery(index) if shared or index in (0, last) else None
            partition = self._partition(key, settings, owned) if shared else owned
            key_bytes = key.encode(errors="surrogateescape")
            produce(topic, entry.value, key_bytes, partition, report, None, entry.timestamp_ms or FIRST_RECORD_MS)

    def _partition(self, key: str, settings: LogSettings, owned: int) -> int:
        if self.topic in topics.BY_KEY:
            return partition_of(key, settings.partitions)
        return 0 if self.topic in topics.SINGLE else owned

    def _on_delivery(self, index: int) -> Any:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._found[index] = message.offset() or 0
            else:
                self._error = error

        return report


class Submitter:
    """A producer without transactions, whose reports arrive in its own thread."""

    def __init__(self, settings: LogSettings, config: dict[str, Any]) -> None:
        self._settings, self._config = settings, client_config(settings, **(WRITER | config))
        self._contact = Contact(settings.topic(topics.COMMANDS))
        self._producer = Producer(self._config)
        self._is_broken = False
        """Whether the producer had a fatal error: it accepts no record any more."""
        self._replacing = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="submitter", daemon=True)
        self._thread.start()

    def send(self, entries: Sequence[Entry], partition: int, failed: Failed, stored: Stored | None = None) -> None:
        """Append them in this order; call `stored` with the offset of the last, or `failed`, in any thread.

        Only the last is reported, because the thread must interrupt all others for each report. An idempotent producer
        keeps the order, so if the last is stored, the others are; or they were refused one by one, and not reported.
        """
        last = len(entries) - 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._note_fatal(producer, error)
                failed(_not_appended(entries[last], error.str()))
            elif stored is not None:
                stored(message.offset() or 0)

        try:
            with self._replacing:  # a replaced producer is not polled any more
                producer = self._producer
                for index, entry in enumerate(entries):
                    producer.produce(
                        self._settings.topic(entry.topic),
                        key=entry.key.encode(errors="surrogateescape"),
                        value=entry.value,
                        partition=partition,
                        timestamp=entry.timestamp_ms or FIRST_RECORD_MS,
                        on_delivery=on_delivery if index == last else None,
                    )
        except KafkaException as error:
            self._note_fatal(producer, error.args[0])
            failed(_not_appended(entries[last], str(error)))
        except BufferError as error:
            failed(_not_appended(entries[last], str(error)))

    def close(self) -> None:
        """Wait for records being sent, and stop."""
        self._producer.flush(TIMEOUT_S)
        self._stopped.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(0.1)
            if self._is_broken or self._contact.is_lost(self._producer):
                fresh = Producer(self._config)
                with self._replacing:
                    lost, self._producer, self._is_broken = self._producer, fresh, False
                lost.purge()
                lost.flush(0)  # those that wait for these records get the error

    def _note_fatal(self, producer: Producer, error: KafkaError) -> None:
        """Let a producer be replaced that refuses everything after this error, such as a lost sequence number."""
        if not error.fatal() and error.code() != KafkaError._FATAL:
            return
        with self._replacing:
            if producer is self._producer and not self._is_broken:
                logger.warning("a producer cannot continue, replacing it: %s", error.str())
                self._is_broken = True


def _not_appended(entry: Entry, reason: str) -> LogUnavailable:
    return LogUnavailable(f'appending to "{entry.topic}"', reason)


class Appender:
    """Appends notes, dead letters and what operators did to a topic, and says when everything is stored. It connects
    with its first record."""

    def __init__(self, settings: LogSettings, topic: str, doing: str, wait_s: float = TIMEOUT_S) -> None:
        """topic: with the environment. doing: of the error, such as "writing a note". wait_s: for `flush`."""
        self._config = client_config(settings, **APPENDER)
        self._topic, self._doing, self._wait_s = topic, doing, wait_s
        self._producer: Producer | None = None
        self._refused: list[str] = []

    def put(self, key: str, value: bytes | str | None) -> None:
        """Put a record, or (None) a tombstone; `flush` confirms that it is stored. Raises LogUnavailable."""
        if self._producer is None:
            self._producer = Producer(self._config)
        try:
            self._producer.produce(self._topic, value, key, on_delivery=self._reported)
        except (BufferError, KafkaException) as error:
            raise LogUnavailable(self._doing, str(error)) from error

    def flush(self) -> None:
        """Wait until everything is stored; raises LogUnavailable if it is not, and forgets what was put."""
        if self._producer is None:
            return
        left = self._producer.flush(self._wait_s)
        refused, self._refused = self._refused, []
        if left or refused:
            self._producer = None
            raise LogUnavailable(self._doing, refused[0] if refused else f"no answer for {self._wait_s:g} s")

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error.str())
