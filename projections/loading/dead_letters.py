"""The read side's dead letters: records that could not be processed, with the reason and place."""

from __future__ import annotations

from datetime import UTC, datetime

from confluent_kafka import Message

from headwater.eventlog.envelope import format_time
from headwater.eventlog.kafka.writer import Appender
from headwater.eventlog.letters import Letter, letter_key, time_of
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS


class DeadLetters:
    """Appends to `dead-letters`. Keys are places, so a record that is read again has one dead letter."""

    def __init__(self, settings: LogSettings) -> None:
        self._appender = Appender(settings, settings.topic(DEAD_LETTERS), f'appending to "{DEAD_LETTERS}"')

    def add_record(self, topic: str, record: Message, reason: str) -> None:
        """Write a dead letter for a record of `topic` (its short name); raises LogUnavailable if it is not stored."""
        letter = Letter(reason, time_of(record.timestamp()[1]), record.key(), record.value())
        partition, offset = record.partition(), record.offset()
        self.put(f"{topic}/{partition}/{offset}", letter.to_json(topic=topic, partition=partition, offset=offset))
        self.flush()

    def add(self, key: str, reason: str, what: bytes) -> None:
        """Write a dead letter, with its own key, for a part of a record; raises LogUnavailable if it is not stored."""
        letter = Letter(reason, format_time(datetime.now(UTC)), what, None)
        self.put(letter_key(key), letter.to_json(topic=key.partition("/")[0]))
        self.flush()

    def put(self, key: str, letter: bytes | None) -> None:
        """Put a letter, or (None) remove it; `flush` confirms that it is stored. Raises LogUnavailable."""
        self._appender.put(key, letter)

    def flush(self) -> None:
        """Wait until everything is stored; raises LogUnavailable if it is not."""
        self._appender.flush()
