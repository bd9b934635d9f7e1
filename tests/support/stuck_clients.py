"""Clients of Kafka that are connected and get nothing: what librdkafka's can become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from eventlog.kafka import stuck_client


class JoinsNothing(Consumer):
    """Its group never hears of it."""

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass


class ReceivesNothing(Consumer):
    """It has its partitions, and nothing of what they contain."""

    def poll(self, timeout: float = -1) -> Message | None:
        super().poll(timeout)
        return None


def first_is_stuck(kind: type[Consumer], patched: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Consumer]:
    """Makes clients, of which the first is of this kind and soon found to be stuck. The others are given the usual
    time: on a busy machine a second may not be enough to get what there is.
    """
    usual = stuck_client.IDLE_S, stuck_client.SURE_S
    patched.setattr(stuck_client, "IDLE_S", 1.0)
    patched.setattr(stuck_client, "SURE_S", 1.0)
    made: list[Consumer] = []

    def make(config: dict[str, Any]) -> Consumer:
        if made:
            patched.setattr(stuck_client, "IDLE_S", usual[0])
            patched.setattr(stuck_client, "SURE_S", usual[1])
        made.append(Consumer(config) if made else kind(config))
        return made[-1]

    return make
