"""The live generations as loaders follow them, while PostgreSQL hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry import registry as followed_module
from headwater.projections.generations.registry.registry import followed
from tests.support.waiting import BOUND_S, eventually


class Hanging:
    """A registry that answers once `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.reads = 0

    @contextmanager
    def reader(self) -> Iterator[Callable[[], list[Any]]]:
        yield self._read

    def _read(self) -> list[Any]:
        self.reads += 1
        assert self.answers.wait(BOUND_S)
        return [self.reads]


def test_who_follows_what_is_live_does_not_hang_with_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_module, "WAIT_S", 0.01)
    registry: Any = Hanging()
    registry.answers.set()
    with followed(registry) as live:
        assert answer_of(live) == [1]
        registry.answers.clear()
        with pytest.raises(StoreUnavailable, match="has not answered"):
            live()
        eventually(lambda: registry.reads == 2, "it is read again, by another thread")
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="has not answered"):
                live()
        assert registry.reads == 2, "one read at a time"
        registry.answers.set()
        eventually(lambda: answer_of(live) is not None, "it answers again")


def answer_of(live: Callable[[], Any]) -> Any:
    try:
        return live()
    except StoreUnavailable:
        return None
