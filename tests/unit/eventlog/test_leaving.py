"""A member whose client cannot leave its group, as one that has just lost its broker; such a client is made up here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.eventlog.kafka import client
from headwater.eventlog.kafka.group import KafkaMembership
from tests.support.waiting import BOUND_S, eventually

TOPIC = "e.commands"


class Client:
    """Has all partitions from its first poll on; once it is closed, it gives them up when it is `let_go`."""

    made: ClassVar[list[Client]] = []

    def __init__(self, **_: object) -> None:
        self.let_go, self.is_closed, self._places = threading.Event(), False, list[TopicPartition]()
        self.is_lost = False
        self.made.append(self)

    def subscribe(
        self, _: list[str], on_assign: Callable[..., None], on_revoke: Callable[..., None], **__: Any
    ) -> None:
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def poll(self, _: float) -> None:
        if not self._places:
            self._places = [TopicPartition(TOPIC, partition) for partition in range(2)]
            self._on_assign(self, self._places)

    def close(self) -> None:
        assert self.let_go.wait(BOUND_S)
        self._on_revoke(self, self._places)
        self.is_closed = True

    def incremental_assign(self, _: object) -> None: ...

    def incremental_unassign(self, _: object) -> None: ...

    def pause(self, _: object) -> None: ...


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Client]]:
    monkeypatch.setattr(Client, "made", [])
    monkeypatch.setattr(client, "LEAVE_S", 0.01)
    yield Client.made
    for each in Client.made:
        each.let_go.set()


def test_it_is_left_behind_and_has_no_say_any_more_when_it_leaves_at_last(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    revoked: list[set[int]] = []

    def on_revoked(partitions: frozenset[int]) -> None:
        revoked.append(set(partitions))

    new_client: Callable[..., Consumer] = Client  # type: ignore[assignment]
    member = KafkaMembership(new_client, "e.handler", TOPIC, on_revoked)
    monkeypatch.setattr(member._contact, "is_lost", lambda found: found.is_lost)
    assert member.poll(0) == {0, 1}
    clients[0].is_lost = True
    assert member.poll(0) == frozenset()
    assert revoked == [{0, 1}]
    assert "could not leave its group" in caplog.text
    assert member.poll(0) == {0, 1}, "another client has joined"
    clients[0].let_go.set()
    eventually(lambda: clients[0].is_closed, "the first one has left")
    assert member.poll(0) == {0, 1}
    assert revoked == [{0, 1}]
    clients[1].let_go.set()
    member.close()
    eventually(lambda: clients[1].is_closed, "the second one has left")
    assert revoked == [{0, 1}, {0, 1}]
