"""Which generations are dropped after a rebuild, and which are kept because an alias may lead to them."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.projections.errors import StillNamed
from headwater.projections.generations.registry import publishing
from headwater.projections.generations.registry.publishing import drop_generations, drop_old, drop_unfinished, named
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import BY_THING
from tests.unit.replay.played import Registry, generation

NAME = BY_THING.name


def registry(*states: tuple[int, str, bool]) -> Any:
    """Generations with their number, state, and whether they are published; they went live in this order."""
    return Registry(
        [
            generation(NAME, number, state, published=published, live_at=generation(NAME, at, state).created_at)
            for at, (number, state, published) in enumerate(states)
        ]
    )


def left_by_drop_old(found: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(publishing, "open_store", lambda *_: MemoryStore(Memory()))
    drop_old(BY_THING, found, StoreSettings())
    return [each.generation for each in found.all()]


def test_the_previous_generation_is_kept_and_older_ones_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry((2, "retired", False), (1, "retired", False), (3, "live", True))
    assert named(NAME, found) == {3}
    assert left_by_drop_old(found, monkeypatch) == [1, 3]


def test_what_the_plain_names_show_is_kept_while_the_current_generation_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 2 was published; 3 perhaps in one store; 4 is current; code of an earlier version has replayed 5 and 6
    found = registry(
        (1, "retired", False),
        (2, "retired", True),
        (3, "retired", False),
        (4, "live", False),
        (5, "retired", False),
        (6, "retired", False),
    )
    assert named(NAME, found) == {2, 3, 4, 5, 6}
    assert left_by_drop_old(found, monkeypatch) == [2, 3, 4, 5, 6]


def test_if_nothing_was_published_yet_a_plain_name_may_lead_to_all_that_were_live() -> None:
    assert named(NAME, registry((1, "retired", False), (2, "live", False), (3, "building", False))) == {1, 2}
    assert named(NAME, registry((1, "building", False))) == set()


def test_nothing_is_dropped_that_a_name_leads_to_in_a_store_whatever_the_registry_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PostgreSQL was restored to before a rebuild, or has lost its swap."""
    found, store = registry((1, "live", True), (2, "building", False)), MemoryStore(Memory())
    monkeypatch.setattr(publishing, "open_store", lambda *_: store)
    for number in (1, 2):
        store.create(Target(BY_THING, number), {}, {0: 0})
    store.publish(Target(BY_THING, 2))
    with pytest.raises(StillNamed, match="generation 2"):
        drop_unfinished(BY_THING, found, StoreSettings())
    assert store.ledgers(Target(BY_THING, 2))
    assert [each.generation for each in found.all()] == [1, 2]
    store.publish(Target(BY_THING, 1))
    drop_unfinished(BY_THING, found, StoreSettings())
    assert not store.ledgers(Target(BY_THING, 2))
    drop_generations(BY_THING, found.all(), found, StoreSettings(), is_withdrawn=True)
    assert not store.ledgers(Target(BY_THING, 1))
