"""Clients of Kafka that find no broker, ever, though there is one: what librdkafka's can become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from headwater.eventlog.kafka import client as kafka_client

NOWHERE = "127.0.0.1:1"
Make = Callable[[dict[str, Any]], Any]


def first_is_lost(kind: Make, patched: pytest.MonkeyPatch) -> Make:
    """Makes clients of this kind, of which the first is lost and soon found to be."""
    lost = {"LOST_S": 0.5, "CONTACT_EVERY_S": 0.1}
    return first_is(lambda config: kind({**config, "bootstrap.servers": NOWHERE}), kind, patched, kafka_client, lost)


def first_is(
    first: Make, others: Make, patched: pytest.MonkeyPatch, module: ModuleType, limits: Mapping[str, float]
) -> Make:
    """Makes the first client by `first`, and the others by `others`.

    limits: constants of `module` for the first one; the others are given the usual time, since on a busy machine so
    little may not be enough.
    """
    usual = {name: getattr(module, name) for name in limits}
    for name, limit in limits.items():
        patched.setattr(module, name, limit)
    made: list[Any] = []

    def make(config: dict[str, Any]) -> Any:
        if made:
            for name, limit in usual.items():
                patched.setattr(module, name, limit)
        made.append((others if made else first)(config))
        return made[-1]

    return make
