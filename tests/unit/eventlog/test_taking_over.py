"""How a writer takes a partition over."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventlog.kafka import writer as kafka_writer
from eventlog.kafka.writer import KafkaWriter
from eventlog.ports import HANDLER
from eventlog.settings import LogSettings


class NotingProducer:
    """Notes what it is asked; is_away: whether no broker answers it."""

    is_away = False

    def __init__(self, config: dict[str, Any]) -> None:
        self.asked: list[str] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(f"list {topic}")
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def init_transactions(self, timeout: float) -> None:
        self.asked.append("init")


@pytest.mark.parametrize(("is_away", "questions"), [(False, 2), (True, 1)])
def test_a_new_writer_connects_before_it_takes_over_and_takes_over_even_if_it_could_not(
    monkeypatch: pytest.MonkeyPatch, is_away: bool, questions: int
) -> None:
    monkeypatch.setattr(kafka_writer, "Producer", NotingProducer)
    monkeypatch.setattr(NotingProducer, "is_away", is_away)
    producer: Any = KafkaWriter(LogSettings(environment="e"), 0, HANDLER)._producer
    assert producer.asked == ["list e.snapshots"] * questions + ["init"]
