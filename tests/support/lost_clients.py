"""Clients of Kafka that find no broker, ever, though there is one: what librdkafka's can become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NOWHERE = "127.0.0.1:1"


def first_is_lost(kind: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    """Makes clients of this kind, of which the first is lost."""
    made: list[Any] = []

    def make(config: dict[str, Any]) -> Any:
        made.append(kind(config if made else {**config, "bootstrap.servers": NOWHERE}))
        return made[-1]

    return make
