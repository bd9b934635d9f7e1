"""When a client of Kafka counts as stuck, without a Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.eventlog.kafka import stuck_client
from headwater.eventlog.kafka.stuck_client import IDLE_S, SURE_S, StuckClient
from headwater.eventlog.settings import LogSettings

GROUP = "dev.loader.postgres.any"
ASKED_S = 5.0
"""How long each answer takes here."""


class World:
    """A time, a group and a log: what a client should know of. asked: the questions about them."""

    def __init__(self, patched: pytest.MonkeyPatch, folder: Path, group: str | None = GROUP) -> None:
        self.now_s, self.joining = 0.0, False
        self.record: tuple[int, int] | None = None
        self.asked: list[str] = []
        patched.setattr(stuck_client, "is_joining", self._is_joining)
        patched.setattr(stuck_client, "first_record", self._first_record)
        self.client = StuckClient(LogSettings(state=folder), "patches", group, lambda: self.now_s)

    def is_stuck_after(self, seconds: float, positions: Mapping[int, int]) -> bool:
        self.now_s += seconds
        return self.client.is_stuck(positions)

    def _is_joining(self, _: LogSettings, group: str) -> bool:
        assert group == GROUP
        self.asked.append("group")
        self.now_s += ASKED_S
        return self.joining

    def _first_record(self, _: LogSettings, topic: str, positions: Mapping[int, int]) -> tuple[int, int] | None:
        assert positions
        self.asked.append(topic)
        self.now_s += ASKED_S
        return self.record


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_a_client_without_an_assignment_is_stuck_if_its_group_waits_for_nobody(world: World) -> None:
    assert not world.is_stuck_after(IDLE_S - 1, {})
    assert world.asked == []
    assert not world.is_stuck_after(1, {}), "the assignment may be on its way"
    assert not world.is_stuck_after(SURE_S - 1, {})
    assert world.is_stuck_after(1, {})
    assert world.asked == ["group", "group"]


def test_a_group_may_wait_for_a_member_that_works_for_hours(world: World) -> None:
    world.joining = True
    assert not any(world.is_stuck_after(IDLE_S, {}) for _ in range(300))
    world.joining = False
    world.is_stuck_after(IDLE_S, {})
    world.client.assigned()
    assert not any(world.is_stuck_after(IDLE_S, {}) for _ in range(10)), "an empty assignment is an assignment"


def test_a_client_is_stuck_if_another_reads_what_it_does_not(world: World) -> None:
    world.client.assigned()
    assert not world.is_stuck_after(IDLE_S, {0: 3, 1: 5}), "there is nothing to read"
    world.record = (1, 5)
    assert not world.is_stuck_after(IDLE_S, {0: 3, 1: 5}), "it may be on its way"
    assert not world.is_stuck_after(SURE_S - 1, {0: 3, 1: 5})
    assert world.is_stuck_after(1, {0: 3, 1: 5})
    assert len(world.asked) == 3


def test_it_is_not_if_it_gets_something_after_all(world: World) -> None:
    world.client.assigned()
    world.record = (1, 5)
    world.is_stuck_after(IDLE_S, {1: 5})
    world.client.received()
    assert not world.is_stuck_after(SURE_S, {1: 5})
    world.record = None
    assert not world.is_stuck_after(IDLE_S, {1: 5})


def test_which_of_several_records_is_found_first_makes_no_difference(world: World) -> None:
    world.client.assigned()
    world.record = (1, 5)
    world.is_stuck_after(IDLE_S, {0: 3, 1: 5})
    world.record = (0, 3)
    assert world.is_stuck_after(SURE_S, {0: 3, 1: 5})


def test_a_client_that_was_replaced_is_given_its_time(world: World) -> None:
    world.is_stuck_after(IDLE_S, {})
    assert world.is_stuck_after(SURE_S, {})
    world.client.started()
    assert not world.is_stuck_after(SURE_S, {})
    assert len(world.asked) == 2


def test_one_that_reads_given_partitions_has_no_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = World(monkeypatch, tmp_path, None)
    assert not world.is_stuck_after(IDLE_S, {})
    assert world.asked == [], "it reads nothing while no generation is loaded"
    world.record = (0, 0)
    assert not world.is_stuck_after(IDLE_S, {0: 0})
    assert world.is_stuck_after(SURE_S, {0: 0})
