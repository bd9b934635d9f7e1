"""Heartbeats in the topics of captured tables: they show how far a view has read where nothing changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException, Producer

from eventlog.capturing.declaring import Captured
from eventlog.heartbeats import PREFIX, heartbeat_key
from eventlog.kafka_client import client_config
from eventlog.settings import LogSettings

log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
PRODUCER: Final = {"acks": "all", "message.timeout.ms": 5_000, "linger.ms": 5, "compression.type": "none"}


def is_table_heartbeat(key: bytes | None) -> bool:
    """Whether a record of a captured table is a heartbeat: Debezium's keys are JSON objects."""
    return key is not None and key.startswith(PREFIX.encode())


@contextmanager
def beating(settings: LogSettings, tables: Iterable[type[Captured]]) -> Iterator[None]:
    """Append a heartbeat to every partition of these tables' topics each second, until the context ends.

    A heartbeat that cannot be written is left out; compaction keeps the last one of each partition.
    """
    topics = [settings.topic(table.topic()) for table in tables]
    if not topics:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(settings, topics, stop), name="table-heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(settings: LogSettings, topics: list[str], stop: threading.Event) -> None:
    producer = Producer(client_config(settings, **PRODUCER))
    while True:
        for topic in topics:
            for partition in range(settings.partitions):
                try:
                    producer.produce(topic, key=heartbeat_key(partition), value=b"{}", partition=partition)
                except (BufferError, KafkaException) as error:
                    log.warning("no heartbeat in %s: %s", topic, error)
        producer.poll(0)
        if stop.wait(EVERY_S):
            producer.flush(EVERY_S)
            return
