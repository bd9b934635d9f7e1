"""Clients of Kafka that find no broker, ever, though there is one: what librdkafka's can become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventlog.kafka import client as kafka_client

NOWHERE = "127.0.0.1:1"
Make = Callable[[dict[str, Any]], Any]


def first_is_lost(kind: Make, patched: pytest.MonkeyPatch) -> Make:
    """Makes clients of this kind, of which the first is lost and soon found to be; the others are given the usual time,
    since on a busy machine half a second may not be enough to connect.
    """
    usual = kafka_client.LOST_S, kafka_client.CONTACT_EVERY_S
    patched.setattr(kafka_client, "LOST_S", 0.5)
    patched.setattr(kafka_client, "CONTACT_EVERY_S", 0.1)
    made: list[Any] = []

    def make(config: dict[str, Any]) -> Any:
        if made:
            patched.setattr(kafka_client, "LOST_S", usual[0])
            patched.setattr(kafka_client, "CONTACT_EVERY_S", usual[1])
        made.append(kind(config if made else {**config, "bootstrap.servers": NOWHERE}))
        return made[-1]

    return make
