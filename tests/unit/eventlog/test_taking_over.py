"""How a writer takes a partition over, and when it takes a new epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater.eventlog.kafka import writer as kafka_writer
from headwater.eventlog.kafka.client import SENT_ONCE_S, WRITER
from headwater.eventlog.kafka.writer import KafkaWriter, TransactionalProducer
from headwater.eventlog.ports import HANDLER
from headwater.eventlog.settings import LogSettings


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

    def begin_transaction(self) -> None:
        self.asked.append("begin")

    def commit_transaction(self, timeout: float) -> None:
        self.asked.append("commit")

    def purge(self) -> None:
        self.asked.append("purge")

    def flush(self, timeout: float) -> None:
        pass


@pytest.mark.parametrize(("is_away", "questions"), [(False, 2), (True, 1)])
def test_a_new_writer_connects_before_it_takes_over_and_takes_over_even_if_it_could_not(
    monkeypatch: pytest.MonkeyPatch, is_away: bool, questions: int
) -> None:
    monkeypatch.setattr(kafka_writer, "Producer", NotingProducer)
    monkeypatch.setattr(NotingProducer, "is_away", is_away)
    producer: Any = KafkaWriter(LogSettings(environment="e"), 0, HANDLER)._producer.client
    assert producer.asked == ["list e.snapshots"] * questions + ["init"]


@pytest.mark.parametrize(("took_s", "is_new"), [(0.001, False), (0.069, False), (0.08, True), (5.0, True)])
def test_a_commit_that_may_have_been_sent_twice_is_followed_by_a_new_epoch(
    monkeypatch: pytest.MonkeyPatch, took_s: float, is_new: bool
) -> None:
    clock = [0.0]
    monkeypatch.setattr(kafka_writer, "Producer", NotingProducer)
    monkeypatch.setattr(kafka_writer, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    producer = TransactionalProducer(LogSettings(environment="e"), "e.handler.0", "e.snapshots")
    producer.begin()
    first: Any = producer.client
    monkeypatch.setattr(first, "commit_transaction", lambda _: clock.append(clock.pop() + took_s))
    producer.commit()
    producer.begin()
    second: Any = producer.client
    assert (second is not first) == is_new
    assert second.asked[-2:] == (["init", "begin"] if is_new else ["begin", "begin"])


def test_librdkafka_sends_nothing_again_as_soon_as_a_commit_that_was_sent_once_is_answered() -> None:
    assert WRITER["retry.backoff.ms"] * 0.8 / 1000 > SENT_ONCE_S
