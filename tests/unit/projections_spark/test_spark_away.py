"""Spark that does not start, or whose JVM has ended: the error names the view."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from headwater.eventlog.settings import LogSettings
from headwater.projections.engines import SparkQueries
from headwater.projections.errors import BulkLoadFailed, StreamQueryFailed
from headwater.projections.spark.workers import SparkTasks
from headwater.projections.stores.store import Target
from tests.support.observed import gate_view

SETTINGS = LogSettings()


class Ended:
    """A session whose JVM has ended."""

    sparkContext = SimpleNamespace(accumulator=lambda _: None)  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_patches_that_an_ended_jvm_does_not_make_fail_their_view() -> None:
    session: Any = Ended()
    tasks, ranges = SparkTasks(session, SETTINGS), {"0": (0, 10)}
    with pytest.raises(BulkLoadFailed, match='"gates" failed: Spark\'s JVM has ended'):
        list(tasks.patches(gate_view(), ranges))


def test_a_query_whose_spark_does_not_start_is_named() -> None:
    def session() -> Any:
        raise RuntimeError("Java gateway process exited before sending its port number")

    queries = SparkQueries(SETTINGS, session)
    with (
        pytest.raises(StreamQueryFailed, match=r'"gates@1\.g1" failed: Spark does not start: Java gateway process'),
        queries.running(Target(gate_view(), 1), anew=True),
    ):
        pass
