"""Configuration of Headwater's Kafka clients, and the translation of their errors and log lines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from headwater.eventlog.errors import EventLogError, Fenced, LogUnavailable
from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.ports import Record
from headwater.eventlog.settings import LogSettings

TIMEOUT_S = 10.0
"""How long any request to Kafka may take."""
ASK_S = 3.0
"""How long a question to one broker may take; a broker that is down does not answer it."""
ABORT_TIMEOUT_S = 2.0
"""Short, because the next owner aborts open transactions."""

CONTACT_EVERY_S = 10.0
CONTACT_TIMEOUT_S = 2.0
"""Longer than the broker keeps a fetch, for which the question waits."""
LOST_S = 30.0
"""Longer than the start of a broker, so that clients are rarely replaced."""
LEAVE_S = 5.0
"""How long a client may take to leave its group. A group notices in 6 s by itself that a member is gone."""

EOF = KafkaError._PARTITION_EOF
FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
# a partition has no leader just after its topic was created, and while a broker restarts; brokers do not learn of it
# at the same time
NO_LEADER_CODES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)

# librdkafka waits a whole second before the next fetch if its queue was full, which halves a fast reader
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
READERS: Final = "reader"
"""The group that readers name which share nothing with others. Nobody joins it, and it has no offsets."""
RETRY_MS = 100
SENT_ONCE_S = 0.07
"""A request that was answered sooner was sent once: before librdkafka sends one again, in whatever case, it waits for
RETRY_MS or up to 20 % less (rd_kafka_broker_buf_retry).
"""
# idempotent, so that a retry inside librdkafka neither repeats nor reorders a record
WRITER = {
    "enable.idempotence": True,
    "retry.backoff.ms": RETRY_MS,
    "linger.ms": 0,
    "message.max.bytes": MAX_RECORD_BYTES,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
}
GROUP = {
    "partition.assignment.strategy": "cooperative-sticky",
    # how long a killed member's partitions wait for another member; Kafka's default minimum
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
}

CONNECTION_LINES_S = 10.0
"""A client without a broker logs dozens of connection attempts per second: one line in this time is enough."""

client_logger = logging.getLogger("librdkafka")


class _ConnectionLines(logging.Filter):
    """Lets one line about failed connections through per CONNECTION_LINES_S."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged."""
        if not record.getMessage().startswith("FAIL "):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + CONNECTION_LINES_S
        return True


def _is_no_fencing(record: logging.LogRecord) -> bool:
    """Whether a line is about something else than a writer that was fenced: who has the writer gets Fenced."""
    message = record.getMessage()
    return "_FENCED" not in message and "has been fenced" not in message and "an old epoch" not in message


client_logger.addFilter(_ConnectionLines())
client_logger.addFilter(_is_no_fencing)


class Contact:
    """Whether a client still knows a broker; check it often, and replace the client if it has lost contact.

    librdkafka (from 2.13, https://github.com/confluentinc/librdkafka/issues/5301) forgets all its brokers if a starting
    broker tells it that there are none, and never connects again. A client is also replaced if Kafka is only
    temporarily unavailable, which does no harm.
    """

    def __init__(self, topic: str) -> None:
        """topic: an existing topic, for requests to Kafka."""
        self._topic = topic
        self.answered()

    def answered(self) -> None:
        """Kafka has answered."""
        self._answered_at = time.monotonic()
        self._next = self._answered_at + CONTACT_EVERY_S

    def is_lost(self, client: Consumer | Producer) -> bool:
        """Whether Kafka has not answered for LOST_S; sends a request if there was no answer for a while.

        After it returned True, the next calls are about the new client.
        """
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + CONTACT_EVERY_S
        try:
            client.list_topics(self._topic, timeout=CONTACT_TIMEOUT_S)
        except KafkaException as error:
            if now - self._answered_at < LOST_S:
                return False
            client_logger.warning("no broker has answered for %.0f s, reconnecting: %s", now - self._answered_at, error)
            self.answered()
            return True
        self.answered()
        return False


def leave(consumer: Consumer) -> None:
    """Close a consumer that is a member of a group, or commits offsets; it may call its callbacks in another thread.

    One that has just lost its broker waits for the answer to its last commit, and asks for it again: that was seen to
    take 27 s. After LEAVE_S it is left behind, and ends by itself.
    """
    leaving = threading.Thread(target=consumer.close, name="leaving", daemon=True)
    leaving.start()
    leaving.join(LEAVE_S)
    if leaving.is_alive():
        client_logger.warning("left a client behind that could not leave its group within %g s", LEAVE_S)


def client_config(settings: LogSettings, **config: Any) -> dict[str, Any]:
    """Client configuration of a deployment's log, plus `config`."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": settings.environment,
        "socket.timeout.ms": 6_000,
        "socket.nagle.disable": True,
        "logger": client_logger,
        "log_level": 4,
        **settings.security.for_librdkafka(),
        **config,
    }


def reader_config(settings: LogSettings, **config: Any) -> dict[str, Any]:
    """Configuration of a consumer that is a member of no group, plus `config`."""
    return client_config(settings, **{**READER, "group.id": f"{settings.environment}.{READERS}", **config})


@contextmanager
def translated(doing: str, partition: int) -> Iterator[None]:
    """Translate the client's errors into the log's own."""
    try:
        yield
    except BufferError as error:
        raise LogUnavailable(doing, str(error)) from error
    except KafkaException as error:
        raise translate(error.args[0], doing, partition) from error


def translate(error: KafkaError, doing: str, partition: int) -> EventLogError:
    """The log's error for a client's error."""
    return Fenced(partition) if error.code() in FENCED_CODES else LogUnavailable(doing, error.str())


def offset_of(message: Message, doing: str) -> int:
    """Offset of a record, or the current end of the partition; raises for any other message."""
    error = message.error()
    if error is not None and error.code() != EOF:
        raise LogUnavailable(doing, error.str())
    return message.offset() or 0


def record_of(topic: str, message: Message) -> Record:
    """A message of `topic`, named without the environment, as a record."""
    key = message.key() or b""
    return Record(
        topic,
        message.partition() or 0,
        message.offset() or 0,
        key if isinstance(key, str) else key.decode(errors="surrogateescape"),
        message.value(),
        message.timestamp()[1],
    )
