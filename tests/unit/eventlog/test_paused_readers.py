"""A process that is paused in the middle of a question to Kafka, and finds its time over when it goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest

from headwater.eventlog.errors import LeftOpen, LogUnavailable
from headwater.eventlog.kafka import log as kafka
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import HANDLER
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from tests.support.module_time import set_time

PAUSE_S = 3_600.0
LOG = KafkaLog(LogSettings(bootstrap="nowhere:1"))


class Clock:
    """Goes on by itself, and by `pause`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._paused_s, self._monotonic = 0.0, time.monotonic
        set_time(monkeypatch, "headwater.eventlog.kafka.log", monotonic=lambda: self._monotonic() + self._paused_s)

    def pause(self) -> None:
        self._paused_s += PAUSE_S


class Stored:
    """A record as Kafka's client gives it."""

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return 0


class Reader:
    """Gives a record at its third question, or none; the first question takes very long."""

    def __init__(self, clock: Clock, *, has_one: bool) -> None:
        self._clock, self._asked, self._has_one = clock, count(1), has_one

    def assign(self, _: object) -> None: ...

    def consume(self, _: int, timeout_s: float) -> list[Any]:
        if not timeout_s:
            return []
        if (asked := next(self._asked)) == 1:
            self._clock.pause()
        return [Stored()] if self._has_one and asked == 3 else []


@pytest.mark.parametrize("has_one", [True, False])
def test_a_reader_goes_on_and_a_silent_kafka_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch, has_one: bool
) -> None:
    reader = Reader(Clock(monkeypatch), has_one=has_one)
    monkeypatch.setattr(LOG, "reader", lambda: nullcontext(reader))
    if has_one:
        assert [len(found) for found in LOG.batches(EVENTS, 0, 0, 1)] == [1]
        return
    with pytest.raises(LogUnavailable, match="nothing came"):
        list(LOG.batches(EVENTS, 0, 0, 1))


@pytest.mark.parametrize("ends", [True, False])
def test_who_takes_over_looks_again_for_the_end_of_the_transaction_before(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    clock, asked = Clock(monkeypatch), count(1)

    def at(_: LogSettings, names: Sequence[str], __: int) -> tuple[dict[str, int], dict[str, int]]:
        if (number := next(asked)) == 1:
            clock.pause()
        return dict.fromkeys(names, int(ends and number == 3)), dict.fromkeys(names, 1)

    monkeypatch.setattr(kafka, "ends", at)
    if ends:
        LOG._check_ended(0, HANDLER)
        return
    with pytest.raises(LeftOpen):
        LOG._check_ended(0, HANDLER)
