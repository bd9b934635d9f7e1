"""Aliases: one store that cannot move its own stops no other store, no other view and no start."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import CannotPublish, NotPublished, StoreUnavailable
from headwater.projections.generations.registry.publishing import publish_everywhere
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.store import Target
from headwater.projections.table.view import TableView
from tests.contracts.view_histories import BY_GROUP, BY_THING


@dataclass
class Named:
    """A store of which only the alias matters."""

    error: Exception | None = None
    name: str = "a store"
    published: list[int] = field(default_factory=list)

    def publish(self, target: Target) -> None:
        if self.error is not None:
            raise self.error
        self.published.append(target.generation)


@dataclass
class Registry:
    """Notes which generations are published. error: instead."""

    error: Exception | None = None
    noted: list[tuple[str, int]] = field(default_factory=list)

    def note_published(self, view: str, generation: int) -> None:
        if self.error is not None:
            raise self.error
        self.noted.append((view, generation))


def test_every_store_is_tried_and_all_that_failed_are_named() -> None:
    stores: Any = [
        Named(CannotPublish("PostgreSQL", "by_thing", "view mine depends on view by_thing")),
        Named(),
        Named(StoreUnavailable("Valkey", "gone")),
    ]
    done: list[int] = []
    registry: Any = Registry()
    with pytest.raises(NotPublished, match=r"view mine depends on.*Valkey is unavailable.*replay publish by_thing"):
        publish_everywhere(Target(BY_THING, 4), stores, registry, done.append)
    assert [store.published for store in stores] == [[], [4], []]
    assert done == [2]
    assert registry.noted == []
    publish_everywhere(Target(BY_THING, 5), stores[1:2], registry)
    assert registry.noted == [(BY_THING.name, 5)]


@pytest.mark.parametrize("at", ["store", "registry"])
def test_any_error_after_the_swap_says_that_the_generation_is_live(at: str, caplog: pytest.LogCaptureFixture) -> None:
    defect, away = ZeroDivisionError("a bug"), StoreUnavailable("PostgreSQL", "gone")
    stores: Any = [Named(defect if at == "store" else None), Named()]
    registry: Any = Registry(away if at == "registry" else None)
    cause = "ZeroDivisionError: a bug" if at == "store" else "PostgreSQL is unavailable"
    with pytest.raises(NotPublished, match=f'generation 4 of "by_thing" is live .*{cause}.*replay publish by_thing'):
        publish_everywhere(Target(BY_THING, 4), stores, registry)
    assert stores[1].published == [4]
    told = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert told == ([defect] if at == "store" else [])


def test_a_plain_name_that_cannot_move_stops_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []

    def publish_live(view: TableView, *_: object) -> None:
        tried.append(view.name)
        raise NotPublished(view.name, 3, "view mine depends on it")

    live = SimpleNamespace(version=1, generation=1, published=False)
    registry = SimpleNamespace(
        prepare=lambda: None,
        of_this_code=lambda _: live,
        live=lambda: {"by_group": live, "by_thing": live},
        being_built=list,
        all=list,
    )
    monkeypatch.setattr(Service, "generations", registry)
    monkeypatch.setattr("headwater.projections.service.KafkaLog", lambda _: MemoryLog(1))
    monkeypatch.setattr("headwater.projections.service.publish_live", publish_live)
    views = ViewRegistry([("here", BY_GROUP), ("here", BY_THING)])
    service = Service(LogSettings(), StoreSettings(), views)
    assert service.build_missing() == []
    assert tried == ["by_group", "by_thing"]
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 2
    assert "replay publish by_group" in told[0]
