"""What the query of a stream view says of its progress: once per offset, and again after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eventlog.errors import LogUnavailable
from eventlog.settings import LogSettings
from projections.spark.streams import progress
from projections.spark.streams.progress import ProgressSender

SETTINGS = LogSettings(patch_partitions=2)


class Producer:
    """Kafka's, which may be down."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, int]] = []
        self.error: KafkaError | None = None

    def produce(self, _: str, value: str, __: bytes, partition: int, report: Callable[..., None]) -> None:
        document = json.loads(value)
        self.sent.append((document["p"], document["o"], partition))
        report(self.error, None)

    def flush(self) -> None: ...


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    producer = Producer()

    def made(_: Any) -> Producer:
        return producer

    monkeypatch.setattr(progress, "Producer", made)
    return producer


def test_progress_goes_to_every_partition_of_patches_and_only_if_it_is_new(producer: Producer) -> None:
    sender = ProgressSender(SETTINGS, "gates@1.g1")
    sender.send({"observations/0": 3, "observations/1": 0})
    assert producer.sent == [("observations/0", 2, 0), ("observations/0", 2, 1)]
    sender.send({"observations/0": 3, "observations/1": 1})
    assert producer.sent[2:] == [("observations/1", 0, 0), ("observations/1", 0, 1)]
    ProgressSender(SETTINGS, "gates@1.g1").send({"observations/0": 3})
    assert producer.sent[4:] == producer.sent[:2], "after a restart it is sent again"


def test_progress_that_kafka_did_not_take_is_sent_again(producer: Producer) -> None:
    sender = ProgressSender(SETTINGS, "gates@1.g1")
    producer.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(LogUnavailable):
        sender.send({"observations/0": 3})
    producer.error = None
    sender.send({"observations/0": 3})
    assert len(producer.sent) == 4
