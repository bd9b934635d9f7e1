"""Clients of Kafka that are connected and get nothing: what librdkafka's can become."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from headwater.eventlog.kafka import stuck_client
from tests.support.lost_clients import Make, first_is


class JoinsNothing(Consumer):
    """Its group never hears of it."""

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass


class ReceivesNothing(Consumer):
    """It has its partitions, and nothing of what they contain."""

    def poll(self, timeout: float = -1) -> Message | None:
        super().poll(timeout)
        return None


def first_is_stuck(kind: type[Consumer], patched: pytest.MonkeyPatch) -> Make:
    """Makes clients, of which the first is of this kind and soon found to be stuck."""
    return first_is(kind, Consumer, patched, stuck_client, {"IDLE_S": 1.0, "SURE_S": 1.0})
