"""The shared polls of views that are waited for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.api.waiting import awaited as polls
from headwater.api.waiting.awaited import Polls


class Reader:
    """A store whose ledger says nothing."""

    name = "postgres"

    async def guards(self, *_: object) -> dict[str, Any]:
        return {}

    async def ledger(self, _: object) -> None:
        return None


def test_a_read_that_comes_just_as_a_poll_ends_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polls, "LINGER_S", 0.0)
    monkeypatch.setattr(polls, "MIN_INTERVAL_S", 0.0)
    view: Any = SimpleNamespace(name="v", tag="v@1")
    reader: Any = Reader()

    async def live(_: object) -> str:
        return "live"

    generations: Any = SimpleNamespace(live=live)

    async def scenario() -> None:
        made, reading = Polls(), polls.Reading(reader, generations)
        for turns in range(200):
            for _ in range(turns % 8):  # at each moment of the end of the poll before
                await asyncio.sleep(0)
            assert await made.look(view, reading, 0.0, frozenset(), True) is not None

    asyncio.run(scenario())
