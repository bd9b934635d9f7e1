"""Rebuilds of a deployment in memory, of which any part may fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.rebuild import catching_up, rebuild
from headwater.projections.generations.rebuild.engine import BulkResult, Load, Ranges, Waits
from headwater.projections.generations.rebuild.rebuild import Rebuild
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry import publishing
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.state_files import StatePlace
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import open as store_open
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import BulkWriter, Target
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.view_histories import BY_GROUP
from tests.support.observed import gate_view

AWAY = StoreUnavailable("PostgreSQL", "gone")
Failing = Mapping[str, tuple[str, BaseException]]
"""By view, the phase, or the method of its store, that fails, and its error."""
SETTINGS = LogSettings(partitions=2, patch_partitions=2)


@dataclass
class Locks:
    """The locks on queries that a process holds. registry: of who holds which."""

    registry: Registry

    def hold(self, tag: str) -> str | None:
        if tag not in self.registry.query_holders:
            self.registry.query_holders[tag] = "this process"
            return None
        return self.registry.query_holders[tag]

    def close(self) -> None:
        for tag, holder in list(self.registry.query_holders.items()):
            if holder == "this process":
                del self.registry.query_holders[tag]


@dataclass
class Registry:
    """Generations by view and number: their state.

    places: those of read sides. query_holders: by tag. noted: the views and phases of rebuilds.
    """

    states: dict[tuple[str, int], str] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    places: list[StatePlace] = field(default_factory=list)
    query_holders: dict[str, str] = field(default_factory=dict)
    noted: list[tuple[str, str]] = field(default_factory=list)
    view: View = field(default_factory=gate_view)
    """Whose declaration the generations have."""

    def query_locks(self, program: str) -> Locks:
        return Locks(self)

    def state_places(self) -> list[StatePlace]:
        return self.places

    def paused(self) -> dict[str, datetime]:
        return {}

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[Any]:
        self.held.add(view)
        try:
            yield SimpleNamespace()
        finally:
            self.held.remove(view)

    def of(self, view: str) -> list[Any]:
        return [
            SimpleNamespace(
                generation=number,
                state=state,
                stores=["postgres"],
                live_at=None,
                created_at=datetime.fromtimestamp(number, UTC),
                tag=f"{view}@1",
                published=True,
                fingerprint=self.view.fingerprint,
                row_types=self.view.row_types,
                topics=self.topics,
            )
            for (name, number), state in self.states.items()
            if name == view
        ]

    def live(self) -> dict[str, Generation]:
        return {name: self.of(name)[-1] for (name, _), state in self.states.items() if state == "live"}

    def serving(self, _: Iterable[View]) -> dict[str, Generation]:
        return self.live()

    def begin(self, view: TableView, *more: Any) -> Any:
        number = more[-1] + 1  # above what stores show
        self.states[view.name, number] = "building"
        return SimpleNamespace(generation=number)

    def swap(self, view: str, generation: int, *, lock: Any, allow_older: bool) -> bool:
        for name, number in self.states:
            if name == view and self.states[name, number] == "live":
                self.states[name, number] = "retired"
        self.states[view, generation] = "live"
        return True

    def retire(self, view: str, generations: Sequence[int]) -> None: ...

    def forget(self, view: str, generation: int) -> None:
        del self.states[view, generation]

    def note_published(self, view: str, generation: int) -> None: ...

    def note_bulk(self, *_: object) -> None: ...

    def note_rebuild(self, view: str, phase: str, done: int, total: int) -> None:
        self.noted.append((view, phase))

    def forget_rebuild(self, view: str) -> None:
        self.noted.append((view, "ended"))


class Store(MemoryStore):
    def __init__(self, failing: Failing) -> None:
        super().__init__(Memory())
        self._failing = failing

    def _fail(self, target: Target, method: str) -> None:
        where, error = self._failing.get(target.view.name, ("", None))
        if error is not None and where == method:
            raise error

    def create(self, target: Target, *more: Any) -> None:
        self._fail(target, "create")
        super().create(target, *more)

    def bulk_writer(self, target: Target) -> BulkWriter:
        self._fail(target, "bulk_writer")
        return super().bulk_writer(target)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        self._fail(target, "finish")
        return super().finish(target)  # `Folded` says that it wrote rows, and writes none

    def publish(self, target: Target) -> None:
        self._fail(target, "publish")
        super().publish(target)

    def drop(self, target: Target) -> None:
        self._fail(target, "drop")
        super().drop(target)

    def close(self) -> None: ...


@dataclass
class Folded:
    """An engine. passes: the views of each. failing: by view, why its load fails."""

    failing: Mapping[str, BaseException]
    passes: list[list[str]] = field(default_factory=list)

    def bulk_load(self, loads: Sequence[Load[View]]) -> list[Any]:
        self.passes.append([load.view.name for load in loads])
        return [self.failing.get(load.view.name, BulkResult(1, 1, 0.1)) for load in loads]

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        raise NotImplementedError("by this engine")

    def row_patches(
        self, load: Load[View], keys: Set[str] | None, streams: Collection[str] | None = None
    ) -> Iterable[Patch]:
        raise NotImplementedError  # nothing is refused here


@dataclass
class Queried:
    """Queries of stream views.

    begun, ran: their generations. running_now: their views; most_at_once: how many these have been. looks: by view, how
    often it is looked at until its query has computed everything, and an error that comes then. error: why they cannot
    run. last: an error of their end. lost: so is their state.
    """

    begun: list[str] = field(default_factory=list)
    ran: list[tuple[str, bool]] = field(default_factory=list)
    running_now: set[str] = field(default_factory=set)
    most_at_once: int = 0
    looks: dict[str, tuple[int, BaseException | None]] = field(default_factory=dict)
    error: Exception | None = None
    last: Exception | None = None
    lost: str | None = None

    def why_lost(self, *_: object) -> str | None:
        return self.lost

    def begin(self, target: Target) -> None:
        self.begun.append(target.tag)

    @contextmanager
    def running(self, target: Target, *, anew: bool) -> Iterator[Waits]:
        if self.error is not None:
            raise self.error
        self.ran.append((target.tag, anew))
        self.running_now.add(target.view.name)
        self.most_at_once = max(self.most_at_once, len(self.running_now))
        try:
            yield self._computed(target.view.name)
        finally:
            self.running_now.remove(target.view.name)
        if self.last is not None:
            raise self.last

    def _computed(self, view: str) -> Waits:
        number, error = self.looks.get(view, (0, None))
        for _ in range(number):
            yield
        if error is not None:
            raise error


@dataclass
class Stage:
    """A deployment in memory."""

    failing: Failing = field(default_factory=dict)
    registry: Registry = field(default_factory=Registry)
    log: MemoryLog = field(default_factory=lambda: MemoryLog(partitions=2))
    engine: Folded = field(init=False)
    queries: Queried = field(default_factory=Queried)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.failing)
        loads = {view: error for view, (phase, error) in self.failing.items() if phase == "load"}
        self.engine = Folded(loads)

    @property
    def rebuilder(self) -> Rebuilder:
        generations: Any = self.registry
        return Rebuilder(SETTINGS, StoreSettings(), self.log, generations, self.engine, self.queries)


Staged = Callable[[Failing], Stage]
"""Makes a deployment; the fixture `staged` is one."""


def staged(monkeypatch: pytest.MonkeyPatch, failing: Failing) -> Stage:
    """A deployment whose stores are one in memory; each generation has caught up as soon as it is built."""

    @contextmanager
    def no_loaders(*_: object) -> Iterator[list[Any]]:
        yield []

    made = Stage(failing)
    for module in (publishing, store_open):
        monkeypatch.setattr(module, "open_store", lambda *_: made.store)
    monkeypatch.setattr(rebuild, "loading", no_loaders)
    monkeypatch.setattr(catching_up, "HAND_OVER_S", 0.0)
    monkeypatch.setattr(rebuild, "INDEX_AWAY_S", 0.05)
    monkeypatch.setattr(catching_up, "RETRY_S", 0.0)
    monkeypatch.setattr(rebuild, "catch_up", lambda *_: iter(()))
    monkeypatch.setattr(Rebuild, "load", _load)
    return made


def _load(build: Rebuild) -> Load[View]:
    """That of a log with events."""
    return Load(build.target.view, build.ranges, [store.bulk_writer(build.target) for store in build.stores])


def views(*names: str) -> list[TableView]:
    return [replace(BY_GROUP, name=name, stores=(Postgres(),)) for name in names]


def observed(stage: Stage, key: str) -> None:
    stage.log.submit(Entry(OBSERVATIONS, key, b"{}", 1), 1).result()
