"""Appends the few records beside commands and events: notes, dead letters, what operators did."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka.client import TIMEOUT_S, WRITER, client_config
from headwater.eventlog.settings import LogSettings

APPENDER: Final = {**WRITER, "enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
"""An idempotent producer takes half a second and more before its first record, which whoever waits for a command would
feel. So a record may come twice after an error, in order: write only records for which that makes no difference."""


class Appender:
    """Appends to a topic, and says when everything is stored. It connects with its first record."""

    def __init__(self, settings: LogSettings, topic: str, doing: str, wait_s: float = TIMEOUT_S) -> None:
        """topic: with the environment. doing: of the error, such as "writing a note". wait_s: for `flush`."""
        self._config = client_config(settings, **APPENDER)
        self._topic, self._doing, self._wait_s = topic, doing, wait_s
        self._producer: Producer | None = None
        self._refused: list[str] = []

    def put(self, key: str, value: bytes | str | None) -> None:
        """Put a record, or (None) a tombstone; `flush` confirms that it is stored. Raises LogUnavailable."""
        if self._producer is None:
            self._producer = Producer(self._config)
        try:
            self._producer.produce(self._topic, value, key, on_delivery=self._reported)
        except (BufferError, KafkaException) as error:
            raise LogUnavailable(self._doing, str(error)) from error

    def flush(self) -> None:
        """Wait until everything is stored; raises LogUnavailable if it is not, and forgets what was put."""
        if self._producer is None:
            return
        left = self._producer.flush(self._wait_s)
        refused, self._refused = self._refused, []
        if left or refused:
            self._producer = None
            raise LogUnavailable(self._doing, refused[0] if refused else f"no answer for {self._wait_s:g} s")

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error.str())
