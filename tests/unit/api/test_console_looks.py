"""One look for all pages of the console, what it remembers, and what a look finds if servers do not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.api.console.operations import EVERY_S, shared_look
from headwater.api.reads.deployment import DeploymentLook, DeploymentLooks
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.upkeep.lag import Lag
from headwater.replay.parts import letters_of
from tests.unit.api.fake_service import FakeOverseer

LAG = Lag("listings", "postgres", 1, 3, "caught up", {"0": 1}, 0, 0, 0.0)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow(FakeOverseer):
    async def look(self) -> DeploymentLook:
        await asyncio.sleep(0)
        return await super().look()


def test_all_who_ask_at_once_share_a_look_and_a_recent_one_is_used_again() -> None:
    overseer, clock = Slow(), Clock()
    looks = shared_look(lambda: overseer)
    looks._clock = clock

    async def ask() -> None:
        await asyncio.gather(*(looks.current() for _ in range(10)))
        assert overseer.looks == 1
        clock.now_s = EVERY_S - 0.1
        await looks.current()
        assert overseer.looks == 1
        clock.now_s = EVERY_S + 0.1
        await asyncio.gather(*(looks.current() for _ in range(10)))
        assert overseer.looks == 2

    asyncio.run(ask())


def test_nobody_who_leaves_ends_the_look_of_others() -> None:
    overseer = Slow()
    looks = shared_look(lambda: overseer)

    async def ask() -> None:
        leaving, staying = (asyncio.create_task(looks.current()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying).look is overseer.found

    asyncio.run(ask())


def test_a_look_that_fails_is_tried_again() -> None:
    overseer = FakeOverseer()
    looks = shared_look(lambda: overseer)

    async def fail() -> DeploymentLook:
        raise RuntimeError("a mistake")

    async def ask() -> None:
        overseer.look = fail  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await looks.current()
        del overseer.look
        await looks.current()

    asyncio.run(ask())


class Log(MemoryLog):
    """A log that can be unavailable."""

    broken = False

    def end(self, topic: str, partition: int) -> int:
        if self.broken:
            raise LogUnavailable("reading", "no broker")
        return super().end(topic, partition)


class Lags:
    """The states of views, or an error."""

    error: Exception | None = None

    def look(self) -> list[Lag]:
        if self.error is not None:
            raise self.error
        return [LAG]

    def ends(self) -> dict[str, int]:
        return {"0": 1}


def looked() -> tuple[Log, Lags, DeploymentLooks]:
    log, lags = Log(partitions=1), Lags()
    log.submit(Entry(EVENTS, heartbeat_key(0), b"{}", now_ms()), 0).result()
    views: dict[str, Any] = {"listings": SimpleNamespace(every_s=0.0)}
    return log, lags, DeploymentLooks(lags, views, log)


def test_a_look_finds_what_headwater_status_finds_and_the_age_of_rows() -> None:
    log, _, looks = looked()
    look = looks.look()
    assert [(part.what, part.problem) for part in look.parts] == [("partition", ""), ("view", "")]
    assert look.sample.applied_ms["listings", "postgres"] > now_ms() - 60_000
    log.submit(Entry(DEAD_LETTERS, "events/0/1", Letter("why", "", None, None).to_json(), now_ms()), 0).result()
    (letters,) = [part for part in looks.look().parts if part.what == "letters"]
    assert (letters.name, letters.state, letters.fault) == ("events", "1", "nobody")
    assert letters.command == "replay dead-letters list"
    log.submit(Entry(DEAD_LETTERS, "events/0/1", None, now_ms()), 0).result()
    assert not [part for part in looks.look().parts if part.what == "letters"]


def test_a_server_that_does_not_answer_hides_nothing_of_the_others() -> None:
    log, lags, looks = looked()
    looks.look()
    lags.error = StoreUnavailable("PostgreSQL", "no answer")
    look = looks.look()
    (wrong,) = [part for part in look.parts if part.problem]
    assert (wrong.what, wrong.fault) == ("view", "store") and "no answer" in wrong.problem
    assert [part.what for part in look.parts] == ["partition", "view"]
    assert look.sample.lags == [LAG]  # what was seen last, so that its age grows
    lags.error, log.broken = None, True
    assert {part.fault for part in looks.look().parts} >= {"log"}


def test_only_the_last_letters_are_read_for_a_page() -> None:
    log = MemoryLog(partitions=1)
    for number in range(10):
        letter = Letter("why", "", None, b"x" * 1_000).to_json()
        log.submit(Entry(DEAD_LETTERS, f"events/0/{number}", letter, 0), 0).result()
    log.submit(Entry(DEAD_LETTERS, "events/0/9", None, 0), 0).result()
    observed = SimpleNamespace(log=log)
    assert list(letters_of(observed.log)) == [f"events/0/{number}" for number in range(9)]
    assert list(letters_of(observed.log, start=5)) == [f"events/0/{number}" for number in range(5, 9)]
    assert list(letters_of(observed.log, max_bytes=3 * len(letter))) == [f"events/0/{number}" for number in (7, 8)]
    assert len(letters_of(observed.log, max_bytes=1)) <= 1
