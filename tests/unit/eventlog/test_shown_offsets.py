"""Offsets that groups show to Kafka's tools: seldom, without waiting, and whatever comes of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.eventlog.kafka import shown_offsets
from headwater.eventlog.kafka.client import Contact
from headwater.eventlog.kafka.shown_offsets import REPEAT_S, SHOW_S, Places, ShownGroup, ShownOffsets
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS


class Client:
    """Stands for a consumer: keeps what is committed."""

    def __init__(self) -> None:
        self.committed: list[dict[tuple[str, int], int]] = []
        self.fails = False

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.committed.append({(offset.topic, offset.partition): offset.offset for offset in offsets})


class Shown:
    """By a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s, self.client = 0.0, Client()
        self.offsets = ShownOffsets("h.handler", lambda: self.now_s)

    def show(self, places: Places, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.offsets.show(cast(Consumer, self.client), places)


def place(partition: int) -> tuple[str, int]:
    return "h.commands", partition


def test_places_are_committed_from_time_to_time_and_only_those_that_changed() -> None:
    shown = Shown()
    for offset in range(1, 50):
        shown.show({place(0): offset, place(1): 7})
    assert shown.client.committed == [{place(0): 1, place(1): 7}]
    shown.show({place(0): 50, place(1): 7}, SHOW_S)
    assert shown.client.committed[1:] == [{place(0): 50}]
    shown.show({place(0): 50, place(1): 7}, SHOW_S)
    assert len(shown.client.committed) == 2, "nothing has changed"
    shown.show({place(0): 50, place(1): 7}, REPEAT_S)
    assert shown.client.committed[2:] == [{place(0): 50, place(1): 7}], "Kafka forgets what was committed long ago"


def test_failures_are_logged_once_and_the_places_committed_later(caplog: pytest.LogCaptureFixture) -> None:
    shown, refused = Shown(), KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    shown.client.fails = True
    with caplog.at_level(logging.INFO):
        shown.show({place(0): 1})
        shown.show({place(0): 1}, SHOW_S)
        shown.client.fails = False
        shown.show({place(0): 1}, SHOW_S)
        shown.offsets.reported(refused, cast(Any, []))
        shown.show({place(0): 1}, SHOW_S)
        shown.offsets.reported(None, cast(Any, []))
    assert shown.client.committed == [{place(0): 1}] * 2
    (line,) = caplog.messages
    assert "group h.handler" in line


def test_a_client_that_has_lost_all_brokers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Connected(Client):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.is_lost = self.is_closed = False
            made.append(self)

        def poll(self, _: float) -> None:
            pass

        def close(self) -> None:
            self.is_closed = True

    monkeypatch.setattr(shown_offsets, "Consumer", Connected)
    # a thread that another test has left behind may have a client of Kafka
    monkeypatch.setattr(Contact, "is_lost", lambda _, client: getattr(client, "is_lost", False))
    monkeypatch.setattr(shown_offsets, "SHOW_S", 0.0)
    group = ShownGroup(LogSettings("h", "127.0.0.1:1"), "live")
    for offset in range(4):
        group.show({(EVENTS, 0): offset})
        made[-1].is_lost = offset == 1
    group.close()
    assert [each.committed for each in made] == [
        [{("h.events", 0): 0}, {("h.events", 0): 1}],
        [{("h.events", 0): 2}, {("h.events", 0): 3}],
    ]
    assert all(each.is_closed for each in made)
