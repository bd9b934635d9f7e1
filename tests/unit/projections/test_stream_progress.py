"""What the query of a stream view says of its progress: once per offset, and again after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.settings import LogSettings
from headwater.projections.spark.stream_queries.query import ProgressSender

SETTINGS = LogSettings(patch_partitions=2)


GATES, DOORS = "gates@1.g1", "doors@1.g1"


class Producer:
    """Kafka's, which may be down. fatal: it refuses everything from now on."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, int, int]] = []
        self.error: KafkaError | None = None
        self.fatal = self.closed = False

    def produce(self, _: str, value: str, __: bytes, partition: int, report: Callable[..., None]) -> None:
        if self.fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        document = json.loads(value)
        self.sent.append((*document["v"], document["p"], document["o"], partition))
        report(self.error, None)

    def flush(self) -> None: ...

    def purge(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    """Those that were made."""
    made: list[Producer] = []

    def new(_: Any) -> Producer:
        made.append(Producer())
        return made[-1]

    monkeypatch.setattr("headwater.projections.spark.stream_queries.query.Producer", new)
    return made


def test_progress_goes_to_every_partition_of_patches_and_only_if_it_is_new(producers: list[Producer]) -> None:
    sender = ProgressSender(SETTINGS)
    sender.send(GATES, {"observations/0": 3, "observations/1": 0})
    (producer,) = producers
    assert producer.sent == [(GATES, "observations/0", 2, 0), (GATES, "observations/0", 2, 1)]
    sender.send(GATES, {"observations/0": 3, "observations/1": 1})
    assert producer.sent[2:] == [(GATES, "observations/1", 0, 0), (GATES, "observations/1", 0, 1)]
    ProgressSender(SETTINGS).send(GATES, {"observations/0": 3})
    assert producers[1].sent == producer.sent[:2], "after a restart it is sent again"


def test_all_queries_of_a_process_send_through_one_producer_which_it_closes(producers: list[Producer]) -> None:
    with closing(ProgressSender(SETTINGS)) as sender:
        assert not producers, "nothing is to be sent yet"
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: sender.send(f"view{number}@1.g1", {"0": 5}), range(40)))
        (producer,) = producers
        assert len(set(producer.sent)) == len(producer.sent) == 80, "each has progress of its own"
        assert not producer.closed
    assert producer.closed
    with closing(ProgressSender(SETTINGS)):
        pass


def test_progress_that_kafka_did_not_take_is_sent_again(producers: list[Producer]) -> None:
    sender = ProgressSender(SETTINGS)
    sender.send(DOORS, {"observations/0": 1})
    producers[0].error = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(LogUnavailable):
        sender.send(GATES, {"observations/0": 3})
    producers[-1].error = None
    sender.send(GATES, {"observations/0": 3})
    assert producers[-1].sent[-2:] == [(GATES, "observations/0", 2, 0), (GATES, "observations/0", 2, 1)]


def test_a_producer_that_refuses_everything_is_replaced(producers: list[Producer]) -> None:
    sender = ProgressSender(SETTINGS)
    sender.send(DOORS, {"observations/0": 1})
    producers[0].fatal = True
    with pytest.raises(LogUnavailable):
        sender.send(GATES, {"observations/0": 3})
    sender.send(GATES, {"observations/0": 3})
    sender.send(DOORS, {"observations/0": 3})
    assert len(producers) == 2
    assert len(producers[1].sent) == 4
