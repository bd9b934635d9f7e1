"""Spark's session and its settings: small, quick to start, on this machine or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark runs, read from `SPARK_MASTER`, `HEADWATER_SPARK_MEMORY` and `HEADWATER_SPARK_LOG`."""

    master: str = ""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read the `SPARK_*` variables of `env`."""
        raise NotImplementedError


def start_session(settings: SparkSettings, *, name: str, threads: int) -> SparkSession:
    """The session of this process; the live query needs at least as many threads as source partitions."""
    raise NotImplementedError
