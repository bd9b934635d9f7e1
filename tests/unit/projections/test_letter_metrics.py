"""Dead letters as Prometheus reads them: by cause, with the time of the oldest; only what is new is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.eventlog.letters import CAUSES, cause_of
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import DEAD_LETTERS
from headwater.projections.generations.upkeep import view_metrics
from headwater.projections.generations.upkeep.view_metrics import LetterMetrics

KEYS = {
    "commands/0/5": "unreadable command",
    "events/3/17": "unreadable event",
    "events/3/17/router": "not routed",
    "observations/1/2": "unreadable observation",
    "patches/4/100": "refused patch",
    "patches/postgres/listings@1/events/0/5/0": "refused patch",
    "patches/postgres/listings@1/0/5/router": "refused patch",
    "process-inbox/1/99": "failed process",
    "process-inbox/1/timer/shipping/O1/late@17": "failed timer",
    "processes/1/shipping/O1": "unreadable instance",
    "processes/1/shipping/a/router": "unreadable instance",
    "cdc.shop.public.customers/0/7": "unreadable row",
    "cdc.shop.public.customers/0/7/router": "not routed",
    "cdc.shop.message/0/7/outbox": "no command in outbox",
    "views.card_alerts/0/7/router": "not routed",
    "commands/0/5-9": "deleted unread",
    "of-a-later-release/1": "other",
    "": "other",
}


class Log(MemoryLog):
    """Notes from where the letters are read."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.starts: list[int] = []
        self.name = "1"

    def read(self, topic: str, partition: int, start: int, end: int | None = None) -> Iterator[Record]:
        self.starts.append(start)
        return super().read(topic, partition, start, end)

    def incarnation(self, topic: str) -> str:
        return self.name

    def put(self, key: str, time_ms: int, value: bytes | None = b"{}") -> None:
        self.submit(Entry(DEAD_LETTERS, key, value, time_ms), 0).result()


def values(metrics: LetterMetrics, name: str) -> dict[tuple[str, ...], float]:
    (found,) = (span for span in metrics.collect() if span.name == f"headwater_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


@pytest.mark.parametrize(("key", "cause"), KEYS.items())
def test_the_key_of_a_letter_gives_one_of_few_causes(key: str, cause: str) -> None:
    assert cause_of(key) == cause
    assert cause in CAUSES


def test_letters_are_counted_by_cause_until_they_are_removed_and_read_once() -> None:
    log = Log()
    metrics = LetterMetrics(log)
    metrics.look()
    assert values(metrics, "dead_letters") == {}
    log.put("events/0/1", 5_000)
    log.put("events/1/1", 3_000)
    log.put("events/0/1", 9_000)  # written again, since it was read again
    log.put("commands/0/1", 7_000)
    metrics.look()
    event, command = ("events", "unreadable event"), ("commands", "unreadable command")
    assert values(metrics, "dead_letters") == {event: 2, command: 1}
    assert values(metrics, "dead_letters_oldest_timestamp_seconds") == {event: 3, command: 7}
    read = len(log.starts)
    metrics.look()
    assert len(log.starts) == read, "nothing is new"
    log.put("events/1/1", 9_000, None)
    log.put("commands/0/1", 9_000, None)
    metrics.look()
    assert log.starts[-1] == 4
    assert values(metrics, "dead_letters") == {event: 1}
    assert values(metrics, "dead_letters_oldest_timestamp_seconds") == {event: 5}


def test_letters_of_a_topic_that_was_made_again_are_those_of_the_new_one() -> None:
    log = Log()
    metrics = LetterMetrics(log)
    log.put("events/0/1", 5_000)
    metrics.look()
    new = Log()
    new.name = "2"
    new.put("commands/0/1", 7_000)
    metrics._log = new
    metrics.look()
    assert values(metrics, "dead_letters") == {("commands", "unreadable command"): 1}


def test_a_new_letter_costs_as_much_as_one_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    log, named = Log(), list[str]()

    def named_cause_of(key: str) -> str:
        named.append(key)
        return cause_of(key)

    monkeypatch.setattr(view_metrics, "cause_of", named_cause_of)
    metrics = LetterMetrics(log)
    for number in range(100):
        log.put(f"patches/0/{number}", number)
    metrics.look()
    named.clear()
    log.put("patches/0/100", 100)
    log.put("patches/0/0", 101, None)
    metrics.look()
    assert named == ["patches/0/100", "patches/0/0"]
    place = ("patches", "refused patch")
    assert values(metrics, "dead_letters") == {place: 100}
    assert values(metrics, "dead_letters_oldest_timestamp_seconds") == {place: 0.001}
