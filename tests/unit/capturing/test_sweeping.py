"""What `sweep` does with the keys of a topic, with a database and a writer in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from headwater.eventlog.capturing import Captured, Source, sweeping
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.sweeping import Swept, sweep
from headwater.eventlog.settings import LogSettings
from tests.unit.capturing.captured_world import Partitioned


class Day(Captured, table="public.days", key="day"):
    day: date


SOURCE = Source(name="crm", tables=(Day,))
KEYS = {
    b'{"day":"2026-01-31Z"}': True,
    b'{"day":"-5877611-06-21Z"}': False,
    b'{"day":"2026-02-01Z"}': False,
    b"no key": True,
}


class World:
    """Takes the place of Kafka's producer, and of the database that has the first day only."""

    def __init__(self) -> None:
        self.client = self
        self.written: list[bytes] = []

    def begin(self) -> None:
        pass

    def flush(self, _timeout_s: float) -> None:
        pass

    def commit(self) -> None:
        pass

    def produce(self, _topic: str, key: bytes, value: bytes | None, partition: int) -> None:
        self.written.append(key)

    def absent(self, _table: object, keys: Sequence[Sequence[str]]) -> list[int]:
        assert keys, "an empty list of keys is no SQL"
        return [number for number, key in enumerate(keys) if key != ["2026-01-31"]]

    def condition(self, _table: object, keys: Sequence[Sequence[str]]) -> str:
        return f"of {len(keys)}"

    def place(self) -> dict[str, Any]:
        return {}


def test_keys_that_cannot_be_read_are_counted_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(sweeping, "TransactionalProducer", lambda *_: world)
    monkeypatch.setattr(sweeping, "KafkaLog", lambda _: Partitioned(2))
    monkeypatch.setattr(sweeping, "_live_keys", lambda *given: KEYS if given[2] == 0 else {b"": True})
    swept = sweep(LogSettings(partitions=2), Day, world, lambda: None)  # type: ignore[arg-type]
    assert swept == Swept(deleted=1, incomplete=1, where="of 1", unreadable=3)
    assert world.written == [b'{"day":"2026-02-01Z"}'] * 2, "a delete, and a tombstone"


def test_nothing_is_deleted_once_the_connector_may_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(sweeping, "TransactionalProducer", lambda *_: world)
    monkeypatch.setattr(sweeping, "KafkaLog", lambda _: Partitioned(2))
    monkeypatch.setattr(sweeping, "_live_keys", lambda *given: KEYS if given[2] == 0 else {})

    def check() -> None:
        raise SourceProblem("crm", "the connection was lost")

    with pytest.raises(SourceProblem, match="the connection was lost"):
        sweep(LogSettings(partitions=2), Day, world, check)  # type: ignore[arg-type]
    assert world.written == []


def days(number: int) -> dict[bytes, bool]:
    return {f'{{"day":"{1000 + n}-02-01Z"}}'.encode(): False for n in range(number)}


def test_a_large_part_of_a_table_is_deleted_only_if_somebody_said_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(sweeping, "TransactionalProducer", lambda *_: world)
    monkeypatch.setattr(sweeping, "KafkaLog", lambda _: Partitioned(3))
    monkeypatch.setattr(sweeping, "_live_keys", lambda *given: days(sweeping.FREE))
    # this shell has HEADWATER_PARTITIONS=1, and the topic has three
    settings = LogSettings(partitions=1)
    with pytest.raises(SourceProblem, match=r"lacks 300 of the 300 rows .*--yes-delete 300"):
        sweep(settings, Day, world, lambda: None)  # type: ignore[arg-type]
    assert world.written == []
    with pytest.raises(SourceProblem, match="--yes-delete 300"):
        sweep(settings, Day, world, lambda: None, 299)  # type: ignore[arg-type]
    assert sweep(settings, Day, world, lambda: None, 300).deleted == 300  # type: ignore[arg-type]
    assert len(world.written) == 600
    monkeypatch.setattr(sweeping, "KafkaLog", lambda _: Partitioned(1))
    assert sweep(settings, Day, world, lambda: None).deleted == sweeping.FREE  # type: ignore[arg-type]
