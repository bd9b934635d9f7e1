"""Says in `patches` how far the queries of a process have read their sources."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.client import client_config, translated
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import PATCHES
from headwater.projections.loading.decoding import PROGRESS

PRODUCER: Final = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 60_000}


class ProgressSender:
    """Sends the progress of all queries of a process, whose batches end in threads of their own."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        self._replacing = threading.Lock()
        self._sent: dict[str, Mapping[str, int]] = {}

    def send(self, tag: str, ends: Mapping[str, int]) -> None:
        """Say to every partition of `patches` that all rows of records before `ends` are in it already.

        tag: of the generation. ends: an offset by source; those that were sent already are not sent again. Raises
        EventLogError.
        """
        sent = self._sent.get(tag, {})
        due = {source: end for source, end in ends.items() if end and sent.get(source) != end}
        if not due:
            return
        producer = self._current()
        try:
            with translated("sending progress", 0):
                self._send(producer, tag, due)
        except EventLogError:
            self._replace(producer)
            raise
        self._sent[tag] = {**sent, **due}

    def _send(self, producer: Producer, tag: str, ends: Mapping[str, int]) -> None:
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        topic, sent_ms = self._settings.topic(PATCHES), now_ms()
        for source, end in ends.items():
            value = json.dumps({"p": source, "o": end - 1, "t": sent_ms, "v": [tag]})
            for partition in range(self._settings.patch_partitions):
                producer.produce(topic, value, PROGRESS + source.encode(), partition, report)
        producer.flush()
        if failed:
            raise KafkaException(failed[0])

    def close(self) -> None:
        """Send nothing more: after its next batch, a query sends again what was not sent."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.close()

    def _current(self) -> Producer:
        with self._replacing:
            if self._producer is None:
                self._producer = Producer(client_config(self._settings, **PRODUCER))
            return self._producer

    def _replace(self, failed: Producer) -> None:
        """Use another producer from now on: after some errors one refuses everything."""
        with self._replacing:
            if self._producer is failed:
                self._producer = None


@contextmanager
def progress_sender(settings: LogSettings) -> Iterator[ProgressSender]:
    """What sends the progress of all queries, until the context ends."""
    sender = ProgressSender(settings)
    try:
        yield sender
    finally:
        sender.close()
