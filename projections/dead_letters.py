"""What the read side could not take in, kept with its reason and place."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson
from confluent_kafka import Message, Producer

from eventlog.envelope import format_time
from eventlog.errors import LogUnavailable
from eventlog.settings import LogSettings
from eventlog.topics import DEAD_LETTERS

FLUSH_S = 10.0


class DeadLetters:
    """Appends to `dead-letters`, or raises LogUnavailable. Keys are places: what is read again is buried once."""

    def __init__(self, settings: LogSettings) -> None:
        self._topic = settings.topic(DEAD_LETTERS)
        self._settings = {"bootstrap.servers": settings.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        self._producer: Producer | None = None

    def add_record(self, topic: str, record: Message, reason: str) -> None:
        """Bury a whole record of `topic` (its short name)."""
        place = {"topic": topic, "partition": record.partition(), "offset": record.offset()}
        self._send(f"{topic}/{record.partition()}/{record.offset()}", place, reason, record.key(), record.value())

    def add(self, key: str, reason: str, what: bytes) -> None:
        """Bury a part of a record, under a key of its own."""
        self._send(key, {"topic": key.partition("/")[0]}, reason, what, None)

    def put(self, key: str, letter: bytes | None) -> None:
        """Put a letter as it is, or (None) take it away."""
        self._connected().produce(self._topic, letter, key)

    def close(self) -> None:
        """Wait until everything is stored."""
        if self._producer is not None:
            self._producer.flush(FLUSH_S)

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._settings)
        return self._producer

    def _send(
        self, letter: str, place: Mapping[str, object], reason: str, key: bytes | None, value: bytes | None
    ) -> None:
        document = {
            **place,
            "reason": reason,
            "time": format_time(datetime.now(UTC)),
            "key": _text(key),
            "value": _text(value),
        }
        self.put(letter, orjson.dumps(document))
        if self._connected().flush(FLUSH_S):
            self._producer = None
            raise LogUnavailable(f'appending to "{DEAD_LETTERS}"', f"no answer for {FLUSH_S:g} s")


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
