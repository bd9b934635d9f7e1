"""Which engine folds the log for a rebuild: local processes if the log is small, else Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from eventlog.kafka import KafkaLog
from eventlog.settings import LogSettings
from projections.folding.engine import LocalEngine, unsuited
from projections.generations.engine import Engine
from projections.generations.selection import Selection
from projections.spark.engine import SparkEngine
from projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EngineChoice(Enum):
    """What folds the log: `auto` is local processes if the log is small and there is no Spark cluster, else Spark."""

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
    spark = SparkEngine(settings, session)
    if choice is EngineChoice.SPARK or (choice is EngineChoice.AUTO and _has_cluster(env)):
        return spark
    return LocalEngine(settings, log, None if choice is EngineChoice.LOCAL else spark)


def why_spark(
    view: TableView,
    offsets: int,
    selection: Selection,
    choice: EngineChoice = EngineChoice.AUTO,
    env: Mapping[str, str] = os.environ,
) -> str | None:
    """Why Spark folds so many offsets for this view; None if local processes do."""
    if choice is EngineChoice.SPARK:
        return "chosen"
    if choice is EngineChoice.LOCAL:
        return None
    return "there is a cluster" if _has_cluster(env) else unsuited(view, offsets, selection)


def _has_cluster(env: Mapping[str, str]) -> bool:
    return bool(env.get("SPARK_MASTER"))
