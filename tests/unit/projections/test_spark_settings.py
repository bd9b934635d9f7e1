"""How a Spark session is configured from the environment."""

from __future__ import annotations

import pytest

from projections.spark.session import SparkSettings


def test_by_default_spark_runs_in_this_process_with_the_threads_asked_for_and_on_the_loopback_only() -> None:
    options = SparkSettings.from_environment({}).options(6)
    assert options["spark.master"].startswith("local[6,")
    assert options["spark.driver.bindAddress"] == options["spark.driver.host"] == "127.0.0.1"
    assert options["spark.ui.enabled"] == "false"
    assert "spark-sql-kafka" in options["spark.driver.extraClassPath"]


@pytest.mark.parametrize("master", ["spark://elsewhere:7077", "local-cluster[2,1,1024]"])
def test_executors_elsewhere_are_given_the_connector_and_the_memory(master: str) -> None:
    options = SparkSettings.from_environment({"SPARK_MASTER": master, "HEADWATER_SPARK_MEMORY": "3g"}).options(6)
    assert options["spark.master"] == master
    assert "spark-sql-kafka" in options["spark.jars"]
    assert options["spark.executor.memory"] == options["spark.driver.memory"] == "3g"
    assert ("spark.driver.bindAddress" in options) == master.startswith("local")
