"""The live query: every event becomes the patches of all table views that handle it, in real-time mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eventlog.settings import LogSettings
from projections.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def checkpoint_directory(settings: LogSettings, views: Sequence[TableView], cluster_id: str) -> Path:
    """Where the live query of these views keeps its offsets; another set of views starts afresh."""
    raise NotImplementedError


def run_live(
    session: SparkSession,
    views: Sequence[TableView],
    settings: LogSettings,
    *,
    starting: Mapping[int, int] | None = None,
    on_running: Callable[[], None] = lambda: None,
) -> None:
    """Run until stopped; raises LiveQueryFailed when the query dies.

    starting: source offsets to begin at where there is no checkpoint, by partition (None: the earliest).
    on_running: called once, when the query takes in events.
    """
    raise NotImplementedError
