"""When the owner of a partition appends heartbeats: soon after a transaction, rarely when idle, and all at one time."""

from __future__ import annotations

from contextlib import closing

import pytest

from headwater.commands.handling.command_task import HEARTBEAT_S, IDLE_HEARTBEAT_S, CommandTask, busy_s, idle_s
from headwater.commands.local_state.state import MemoryStore
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import COMMANDS, EVENTS
from tests.support.module_time import set_time
from tests.unit.commands.test_decision import REGISTRY, command


@pytest.mark.parametrize("now_s", [0.0, 1_767_323_045.0, 1_767_323_045.7, 1_767_323_049.2, 1_767_323_049.999])
def test_idle_partitions_beat_at_the_same_times(now_s: float) -> None:
    pause_s = idle_s(now_s)
    assert HEARTBEAT_S <= pause_s < HEARTBEAT_S + IDLE_HEARTBEAT_S
    assert (now_s + pause_s) % IDLE_HEARTBEAT_S == pytest.approx(0, abs=1e-5) or (
        (now_s + pause_s) % IDLE_HEARTBEAT_S == pytest.approx(IDLE_HEARTBEAT_S, abs=1e-5)
    )


@pytest.mark.parametrize("now_s", [0.0, 1_767_323_045.0, 1_767_323_045.7, 1_767_323_049.2, 1_767_323_049.999])
def test_busy_partitions_beat_at_the_same_times(now_s: float) -> None:
    pause_s = busy_s(now_s)
    assert 0 < pause_s <= HEARTBEAT_S
    assert (now_s + pause_s) % HEARTBEAT_S == pytest.approx(0, abs=1e-5)


def test_a_heartbeat_follows_each_transaction_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [1_000.0]
    set_time(monkeypatch, "headwater.commands.handling.command_task", monotonic=lambda: clock_s[0])
    log = MemoryLog(partitions=1)

    def beats() -> int:
        return sum(is_heartbeat_key(record.key) for record in log.read(EVENTS, 0, 0))

    with closing(log.own(0)) as writer, closing(CommandTask(log, REGISTRY, 0, MemoryStore())) as task:
        task.restore(writer, lambda: False)
        task.work(writer, [])
        assert beats() == 1
        assert task.wait_s() >= HEARTBEAT_S, "it is idle"
        log.submit(Entry(COMMANDS, "k", command("event"), 1_000), 0)
        task.work(writer, list(log.read(COMMANDS, 0, 0)))
        assert beats() == 1
        assert 0 < task.wait_s() <= HEARTBEAT_S, "soon after the decision"
        clock_s[0] += HEARTBEAT_S
        task.work(writer, [])
        assert beats() == 2
        assert task.wait_s() >= HEARTBEAT_S
        clock_s[0] += IDLE_HEARTBEAT_S + HEARTBEAT_S
        log.submit(Entry(COMMANDS, "k", command("event", 1), 1_000), 0)
        task.work(writer, list(log.read(COMMANDS, 0, 1)))
        assert beats() == 3
        assert 0 < task.wait_s() <= HEARTBEAT_S, "its end is passed by the next one"
