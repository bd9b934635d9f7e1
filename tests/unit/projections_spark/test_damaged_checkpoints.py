"""What Spark refuses of a checkpoint that a power failure has damaged is found in its files, or in what Spark says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater.projections.spark.stream_queries.checkpoint import damaged_file
from headwater.projections.spark.stream_queries.failures import refuses_state
from tests.support.observed import gate_view, record_of, reports
from tests.support.stream_queries import run

pytestmark = pytest.mark.jvm


def emptied(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text("")

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "last commit": emptied("commits/1"),
    "last changelog": emptied("state/0/0/2.changelog"),
    "missing changelog": lambda folder: (folder / "state/0/0/2.changelog").unlink(),
    "schema": emptied("state/0/0/_metadata/schema"),
    "metadata": emptied("metadata"),
    "missing metadata": lambda folder: (folder / "metadata").unlink(),
    "state": lambda folder: shutil.rmtree(folder / "state"),
}
SAID_BY_SPARK = {"state"}
"""A query without state has no such folder either, so that only Spark knows."""


@pytest.mark.complete
def test_what_spark_refuses_is_found(tmp_path: Path) -> None:
    found = [record_of(report) for report in reports(1, 45)]
    batches = [found[:15], found[15:30], found[30:]]
    run(gate_view(), batches[:2], tmp_path)
    checkpoint, intact = tmp_path / "checkpoint", tmp_path / "intact"
    assert damaged_file(checkpoint) is None
    shutil.move(checkpoint, intact)
    for name, damage in DAMAGES.items():
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(intact, checkpoint, ignore=shutil.ignore_patterns(".*.crc"))
        damage(checkpoint)
        assert (damaged_file(checkpoint) is None) == (name in SAID_BY_SPARK), name
        shutil.rmtree(tmp_path / "records")
        with pytest.raises((PySparkException, Py4JError)) as refused:
            run(gate_view(), batches, tmp_path)
        assert name not in SAID_BY_SPARK or refuses_state(refused.value), name
    shutil.rmtree(checkpoint)
    shutil.move(intact, checkpoint)
    shutil.rmtree(tmp_path / "records")
    assert run(gate_view(), batches, tmp_path).rows, "undamaged it goes on"
