"""A producer that cannot continue is replaced; this one is made up, since Kafka makes no fatal error on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater.eventlog.kafka import writer as kafka_writer
from headwater.eventlog.kafka.writer import Submitter
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS
from tests.support.waiting import eventually

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True)
REFUSED = KafkaError(KafkaError._FATAL, "an earlier error was fatal")
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT, "timed out")


class StoredMessage:
    def offset(self) -> int:
        return 7


class MadeUpProducer:
    """It reports a record as stored, or with `error`; and refuses the next ones if it is fatal."""

    made: ClassVar[list[MadeUpProducer]] = []

    def __init__(self, _: object) -> None:
        self.error: KafkaError | None = None
        self.refuses = self.purged = False
        self._reports: list[Callable[[], None]] = []
        self.made.append(self)

    def produce(self, _: str, *, on_delivery: Callable[..., None] | None, **__: Any) -> None:
        if self.refuses:
            raise KafkaException(REFUSED)
        error = self.error
        if on_delivery is not None:
            self._reports.append(lambda: on_delivery(error, StoredMessage()))

    def poll(self, timeout_s: float) -> None:
        threading.Event().wait(min(timeout_s, 0.001))
        reports, self._reports = self._reports, []
        for report in reports:
            report()

    def list_topics(self, *_: object, **__: object) -> None:
        """Kafka answers."""

    def purge(self) -> None:
        self.purged = True

    def flush(self, _: float) -> None:
        self.poll(0)


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[MadeUpProducer]:
    monkeypatch.setattr(MadeUpProducer, "made", [])
    monkeypatch.setattr(kafka_writer, "Producer", MadeUpProducer)
    return MadeUpProducer.made


def outcome(submitter: Submitter) -> str:
    """What the sender of a record gets: an error or an offset."""
    got: list[object] = []
    submitter.send([Entry(COMMANDS, "k", b"{}", 1)], 0, got.append, got.append)
    eventually(lambda: got, "the sender gets an answer")
    return str(got[0])


@pytest.mark.parametrize("refuses", [False, True])
def test_after_a_fatal_error_the_producer_is_replaced_at_once(producers: list[MadeUpProducer], refuses: bool) -> None:
    submitter = Submitter(LogSettings(bootstrap="nowhere:1"), {})
    try:
        assert outcome(submitter) == "7"
        producers[0].error, producers[0].refuses = FATAL, refuses
        assert ("an earlier error was fatal" if refuses else "out of order") in outcome(submitter)
        eventually(lambda: producers[0].purged, "the producer is replaced")
        assert outcome(submitter) == "7"
        assert len(producers) == 2
    finally:
        submitter.close()


def test_after_an_error_of_one_record_the_producer_stays(producers: list[MadeUpProducer]) -> None:
    submitter = Submitter(LogSettings(bootstrap="nowhere:1"), {})
    try:
        producers[0].error = TIMED_OUT
        assert "timed out" in outcome(submitter)
        producers[0].error = None
        assert outcome(submitter) == "7"
        assert len(producers) == 1
    finally:
        submitter.close()
