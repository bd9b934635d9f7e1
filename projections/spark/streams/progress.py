"""Says in `patches` how far the query of a generation has read its sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, Producer

from eventlog.kafka_client import client_config, translate
from eventlog.settings import LogSettings
from eventlog.times import now_ms
from eventlog.topics import PATCHES
from projections.loading.decoding import PROGRESS

PRODUCER: Final = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 60_000}


class ProgressSender:
    """Sends the progress of one query. tag: of its generation."""

    def __init__(self, settings: LogSettings, tag: str) -> None:
        self._settings, self._tag = settings, tag
        self._producer = Producer(client_config(settings, **PRODUCER))
        self._sent: dict[str, int] = {}

    def send(self, ends: Mapping[str, int]) -> None:
        """Say to every partition of `patches` that all rows of records before `ends` are in it already.

        ends: an offset by source; those that this sender has sent already are not sent again. Raises LogUnavailable.
        """
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        topic, sent_ms = self._settings.topic(PATCHES), now_ms()
        for source, end in ends.items():
            if not end or self._sent.get(source) == end:
                continue
            value = json.dumps({"p": source, "o": end - 1, "t": sent_ms, "v": [self._tag]})
            for partition in range(self._settings.patch_partitions):
                self._producer.produce(topic, value, PROGRESS + source.encode(), partition, report)
        self._producer.flush()
        if failed:
            raise translate(failed[0], "sending progress", 0)
        self._sent |= ends
