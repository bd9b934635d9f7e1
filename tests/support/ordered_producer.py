"""A producer for tests: what it sends is in the log once, in the order in which it was sent, or the test fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from tests.support.waiting import BOUND_S


def check_stored(error: KafkaError | None, message: Message) -> None:
    """Fail if a record was not stored; a record's own `on_delivery` replaces it, and must do the same."""
    assert error is None, f"{message.topic()}/{message.partition()} has not stored {message.key()!r}: {error}"


ORDERED: Final[Mapping[str, Any]] = {"linger.ms": 0, "enable.idempotence": True, "on_delivery": check_stored}
"""If a broker refuses a request once, as one may just after a topic was created, a client that is not idempotent sends
it again behind those that it has sent since: a loader then skips what seems to be older than what it has applied.
"""
IN_BULK: Final[Mapping[str, Any]] = {
    **ORDERED,
    "delivery.report.only.error": True,
    "linger.ms": 20,
    "queue.buffering.max.messages": 2_000_000,
}
"""Likewise for millions of records: those that were stored are not reported one by one."""


def ordered_producer(bootstrap: str, **config: Any) -> Producer:
    """Its `flush` and `poll` fail if a record was not stored; `stored` waits until all are. config: more settings."""
    return Producer({"bootstrap.servers": bootstrap, **ORDERED, **config})


def stored(producer: Producer) -> None:
    """Wait until all that the producer got is in the log; fails if Kafka refuses something."""
    left = producer.flush(BOUND_S)
    assert left == 0, f"Kafka did not store {left} records within {BOUND_S:g} s"
