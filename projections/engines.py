"""Who folds the log for a rebuild: a pool of local processes if the log is small, else Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.folding import pool
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.folding.tasks import SparkWorkers, Workers
from headwater.projections.generations.rebuild.engine import FAILURES, Engine, Waits
from headwater.projections.limits import MAX_LOCAL_OFFSETS
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, check_shared, why_lost
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EngineChoice(Enum):
    """Who folds the log: `auto` is local processes if the log is small and there is no Spark cluster, else Spark."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def new_engine(
    settings: LogSettings,
    log: KafkaLog,
    session: Callable[[], SparkSession],
    choice: EngineChoice = EngineChoice.AUTO,
    env: Mapping[str, str] = os.environ,
) -> Engine:
    """An engine; session: starts Spark at its first use."""

    @cache
    def spark() -> SparkWorkers:
        from headwater.projections.spark.workers import SparkTasks  # noqa: PLC0415 - what local processes fold needs no Spark

        return SparkTasks(session(), settings)

    @contextmanager
    def on_spark() -> Iterator[Workers]:
        yield spark()

    def workers(offsets: int) -> AbstractContextManager[Workers]:
        return pool.opened() if _spark_for(offsets, choice, env) is None else on_spark()

    return FoldingEngine(settings, log, workers, None if choice is EngineChoice.LOCAL else spark)


@dataclass(frozen=True)
class SparkQueries:
    """StreamQueries on Spark. session: starts Spark at its first use."""

    settings: LogSettings
    session: Callable[[], SparkSession]

    def begin(self, target: Target) -> None:
        """See StreamQueries.begin."""
        check_shared(self.settings, os.environ)
        Checkpoint.of(self.settings, target.tag).create()

    def why_lost(self, target: Target, ledgers: Iterable[Mapping[int, Ledger]], log: EventLog) -> str | None:
        """See StreamQueries.why_lost."""
        return why_lost(target, ledgers, self.settings, log)

    @contextmanager
    def running(self, target: Target, *, anew: bool) -> Iterator[Waits]:
        """See StreamQueries.running."""
        from headwater.projections.spark.stream_queries.running_query import running  # noqa: PLC0415 - most rebuilds need no Spark

        check_shared(self.settings, os.environ)
        try:
            session = self.session()
        except FAILURES:
            raise
        except Exception as error:  # without Java, for example
            raise StreamQueryFailed(target.tag, f"Spark does not start: {error}") from error
        with running(session, self.settings, target, anew=anew) as computed:
            yield computed


def why_spark(
    view: View,
    offsets: int,
    choice: EngineChoice = EngineChoice.AUTO,
    env: Mapping[str, str] = os.environ,
) -> str | None:
    """Why Spark folds so many offsets for this view; None if local processes do."""
    if view.has_own_query:
        return "it is a stream view"
    if choice is EngineChoice.LOCAL:
        return None
    return _spark_for(offsets, choice, env)


def _spark_for(offsets: int, choice: EngineChoice, env: Mapping[str, str]) -> str | None:
    if choice is EngineChoice.AUTO:
        if env.get("SPARK_MASTER"):
            return "there is a cluster"
        return f"{offsets:,} offsets are more than {MAX_LOCAL_OFFSETS:,}" if offsets > MAX_LOCAL_OFFSETS else None
    return "chosen" if choice is EngineChoice.SPARK else None
