"""When a generation has caught up with the live query, and when it never will."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from headwater.projections.errors import CannotCatchUp
from headwater.projections.generations.rebuild import catching_up
from headwater.projections.generations.rebuild.catching_up import catch_up
from headwater.projections.limits import NO_CLOSER_S
from headwater.projections.loading.loader import Loader
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import BY_GROUP

TARGET = Target(BY_GROUP, 3)


@dataclass
class Load:
    """Patches that arrive and are applied, so many per second each; the clock is here."""

    arriving: float
    applied: float
    backlog: int
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def ends(self) -> dict[int, int]:
        return {0: self.backlog + int(self.arriving * self.now)}


@dataclass
class Loading:
    """What is looked at of the loader."""

    load: Load
    failed: bool = False
    left_out: Mapping[Target, str] = field(default_factory=dict)

    @property
    def positions(self) -> dict[int, int]:
        return {0: int(self.load.applied * self.load.now)}


def caught_up(load: Load, monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds until it has caught up."""
    store = MemoryStore(Memory())
    store.create(TARGET, {}, {0: 0})
    monkeypatch.setattr(catching_up, "time", load)
    for _ in catch_up(TARGET, [store], cast("list[Loader]", [Loading(load)]), load.ends, lambda *_: None):
        load.now += 10.0
    return load.now


def test_it_takes_as_long_as_it_takes_if_the_rest_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_up(Load(1_000, 1_001, 100_000), monkeypatch) > 10 * NO_CLOSER_S


@pytest.mark.parametrize("applied", [0, 999])
def test_a_generation_that_comes_no_closer_fails(applied: float, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(1_000, applied, 100_000)
    with pytest.raises(CannotCatchUp, match=r'generation 3 of "by_group" came no closer .* for 30 minutes'):
        caught_up(load, monkeypatch)
    assert NO_CLOSER_S < load.now < NO_CLOSER_S + 60
