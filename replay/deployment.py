"""The settings, registries and log of one deployment, opened once per command."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.cores import cores
from headwater.eventlog.settings import LogSettings
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.generation import Generation, has_declaration_of
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.view import View
from headwater.replay.errors import ReplayError
from headwater.replay.verbs import chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark() -> SparkSession:
    """The Spark session of this process, started at its first use."""
    from headwater.projections.spark.session import SparkSettings, start_session  # noqa: PLC0415 - only a fold needs Spark

    state = LogSettings.from_environment(os.environ).state
    return start_session(
        SparkSettings.from_environment(os.environ), name="replay", threads=max(2, cores()), state=state
    )


@dataclass(frozen=True)
class Deployment:
    """One deployment, from its environment variables."""

    settings: LogSettings
    stores: StoreSettings
    views: ViewRegistry
    generations: Generations
    log: KafkaLog

    def declared(self, names: Collection[str] | None) -> dict[str, View]:
        """The declared views with these names, or all if none are given, by name. Raises UnknownView."""
        return {name: self.views.view(name) for name in chosen(names, self.views.views)}

    def check_known(self, names: Collection[str] | None, registered: Collection[str]) -> None:
        """Raise UnknownView if one of these views is neither declared nor among the registered ones."""
        for name in names or ():
            if name not in registered:
                self.views.view(name)

    def rebuilder(
        self, session: Callable[[], SparkSession] = start_spark, choice: EngineChoice = EngineChoice.AUTO
    ) -> Rebuilder:
        """Builds, swaps and drops generations; session: starts Spark. choice: what folds the log."""
        self.settings.make_state()
        engine = new_engine(self.settings, self.log, session, choice)
        queries = SparkQueries(self.settings, session)
        return Rebuilder(self.settings, self.stores, self.log, self.generations, engine, queries)


@contextmanager
def open_deployment(env: Mapping[str, str]) -> Iterator[Deployment]:
    """Open the deployment that `env` describes; no server is contacted yet."""
    settings, stores = LogSettings.from_environment(env), StoreSettings.from_environment(env)
    views = ViewRegistry.load(settings.modules)
    with closing(KafkaLog(settings)) as log:
        yield Deployment(settings, stores, views, Generations(stores.postgres, settings.environment), log)


def live_generation(generations: Generations, view: View, refusal: Callable[[str, str], ReplayError]) -> Generation:
    """The live generation; raises `refusal(view, problem)` if there is none, or if it has another declaration."""
    live = generations.serving([view]).get(view.name)
    if live is None:
        raise refusal(view.name, "it has no live generation: rebuild it")
    if not has_declaration_of(live, view):
        raise refusal(
            view.name, f"its live generation is {live.tag}, which has another declaration: run the code of that version"
        )
    return live
