"""Heartbeats in topics whose partitions no handler owns: captured tables and observations.

They show how far a view has read if nothing else comes, and let the windows of stream views close.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.eventlog.envelope import HEARTBEAT, Envelope, encode
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.kafka.client import Contact, client_config
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import VIEWS

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
PRODUCER: Final = {"acks": "all", "message.timeout.ms": 5_000, "linger.ms": 5, "compression.type": "none"}


@contextmanager
def beating(
    settings: LogSettings, topics: Iterable[str], every_s: float = EVERY_S, partitions: int | None = None
) -> Iterator[None]:
    """Append a heartbeat to the partitions of these topics every `every_s` seconds, until the context ends.

    topics: without the environment. partitions: the first so many of each; None: all. For the windows of stream views
    one is enough, and in a batch of Spark each partition with a record is a task. A heartbeat that cannot be written is
    left out; compaction keeps the last one of each partition.
    """
    stop = threading.Event()
    places = [(topic, number) for topic in topics for number in range(partitions or settings.partitions)]
    if not places:
        yield
        return
    thread = threading.Thread(target=_beat, args=(settings, places, every_s, stop), name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(settings: LogSettings, places: list[tuple[str, int]], every_s: float, stop: threading.Event) -> None:
    producer, contact = Producer(client_config(settings, **PRODUCER)), Contact(settings.topic(places[0][0]))

    def reported(error: KafkaError | None, _: Message) -> None:
        if error is None:
            contact.answered()

    while True:
        for topic, partition in places:
            try:
                key, name = heartbeat_key(partition, topic), settings.topic(topic)
                producer.produce(name, key=key, value=_value(topic, key), partition=partition, on_delivery=reported)
            except (BufferError, KafkaException) as error:
                log.warning("no heartbeat in %s: %s", topic, error)
        producer.poll(0)
        if contact.is_lost(producer):
            producer.purge()
            producer = Producer(client_config(settings, **PRODUCER))
        if stop.wait(every_s):
            producer.flush(EVERY_S)
            return


def _value(topic: str, key: str) -> bytes:
    """The value of a heartbeat. Programs outside read the topics of views, in which every record is a CloudEvent."""
    if not topic.startswith(VIEWS):
        return b"{}"
    return encode(Envelope(id=key, type=HEARTBEAT, stream=key, time=datetime.now(UTC), data={}))
