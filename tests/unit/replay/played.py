"""The `replay` command on a deployment in memory: what it prints, at which width, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from typer.testing import CliRunner

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.source_positions import sources_of
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing, ProjectionError, RebuildFailed
from headwater.projections.generations.rebuild.rebuild import Options, Rebuilt, Step
from headwater.projections.generations.registry.generation import Generation, served_by
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.stores.backend import Size
from headwater.projections.stores.store import Target
from headwater.projections.table.view import TableView
from headwater.replay import cli

WIDTH = 80


@dataclass
class Registry:
    """Generations in memory, as PostgreSQL has them. busy: views that another process rebuilds."""

    generations: list[Generation] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    dropped: list[tuple[str, int]] = field(default_factory=list)

    def prepare(self) -> None: ...

    def all(self) -> list[Generation]:
        return sorted(self.generations, key=lambda each: (each.view, each.generation))

    def of(self, view: str) -> list[Generation]:
        return [each for each in self.all() if each.view == view]

    def live(self) -> dict[str, Generation]:
        return {each.view: each for each in self.generations if each.state == "live"}

    def serving(self, views: Iterable[TableView]) -> dict[str, Generation]:
        live = [each for each in self.generations if each.state == "live"]
        found = {view.name: served_by(view, live) for view in views}
        return {name: each for name, each in found.items() if each is not None}

    def withdraw(self, view: str) -> None:
        self.put(view, state="retired")

    def retire(self, view: str, numbers: Sequence[int]) -> None: ...

    def forget(self, view: str, number: int) -> None:
        self.dropped.append((view, number))
        self.generations = [each for each in self.generations if (each.view, each.generation) != (view, number)]

    def put(self, view: str, number: int | None = None, **changes: Any) -> None:
        """Change generations as another process might."""
        self.generations = [
            replace(each, **changes) if each.view == view and number in (None, each.generation) else each
            for each in self.generations
        ]

    def paused(self) -> dict[str, datetime]:
        return {}

    @contextmanager
    def rebuilding(self, view: str) -> Iterator[None]:
        if view in self.busy:
            raise RebuildFailed(view, "start", "another rebuild is running (replay, process 7): wait for it")
        yield


@dataclass
class Played:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Stage:
    """A deployment in memory, and the command on it. failing: views that cannot be rebuilt, and why."""

    registry: Registry = field(default_factory=Registry)
    log: MemoryLog = field(default_factory=lambda: MemoryLog(partitions=4))
    lags: list[Lag] = field(default_factory=list)
    failing: dict[str, BaseException] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)

    def run(self, *words: str, terminal: bool = False, answer: str | None = None) -> Played:
        """Run it at 80 columns. answer: what somebody at the keyboard types; None: nobody is there."""
        env = {"COLUMNS": str(WIDTH), "TTY_COMPATIBLE": "1" if terminal else "0", "NO_COLOR": "1", "TERM": "dumb"}
        done = CliRunner().invoke(cli.app_of(words), list(words), input=answer, env=env)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Played(done.exit_code, done.stdout, done.stderr)

    # what Rebuilder has

    def rebuild_all(
        self, views: Sequence[TableView], on_step: Callable[[Step], None], *, skip_poison: bool = False
    ) -> Iterator[tuple[TableView, Rebuilt | ProjectionError]]:
        for view in views:
            try:
                yield view, self.rebuild(view, on_step, skip_poison=skip_poison)
            except ProjectionError as error:
                yield view, error

    def rebuild(self, view: TableView, on_step: Callable[[Step], None], *, skip_poison: bool = False) -> Rebuilt:
        on_step(Step(view.name, "create"))
        on_step(Step(view.name, "bulk", 1_200_000, 2_000_000))
        if view.name in self.failing:
            raise self.failing[view.name]
        on_step(Step(view.name, "swap", 1, 2))
        return Rebuilt(view.name, 2, 2_000_000, 932, 0, 8.25)

    def build_part(self, view: TableView, name: str, options: Options, on_step: Callable[[Step], None]) -> Rebuilt:
        return replace(self.rebuild(view, on_step), view=name)

    def roll_back(self, view: TableView, on_step: Callable[[Step], None]) -> Rebuilt:
        return self.rebuild(view, on_step)

    # what Lags has

    def look(self) -> list[Lag]:
        return self.lags

    def ends(self) -> dict[str, int]:
        return dict.fromkeys(sources_of(EVENTS, 4), 100)


@dataclass
class Reader:
    """What a store knows of the sizes of its generations."""

    sizes: dict[str, Size]
    store: str

    def size(self, target: Target) -> Size:
        if self.store not in self.sizes:
            raise GenerationMissing(target.view.name, target.generation)
        return self.sizes[self.store]


def generation(view: str, number: int, state: str, stores: Sequence[str] = ("postgres",), **changes: Any) -> Generation:
    built = datetime(2026, 11, 22, 9, number, tzinfo=UTC)
    made = Generation(
        view=view, generation=number, version=1, tag=f"{view}@1", fingerprint="f", state=state,
        bulk_ends={}, patch_starts={},
        created_at=built, live_at=built if state == "live" else None, stores=list(stores), declaration=["d"],
        published=True, events=2_000_000, seconds=8.25, source=None, selection=None,
        read_at=datetime.now(UTC), row_types=[], topics={},
    )  # fmt: skip
    return replace(made, **changes)


def lag(view: str, store: str = "postgres", standing: Any = "caught up", **changes: Any) -> Lag:
    position = {str(partition): 1_234_500 + partition for partition in range(4)}
    return replace(Lag(view, store, 1, 2, standing, position, 0, 0, 0.0), **changes)
