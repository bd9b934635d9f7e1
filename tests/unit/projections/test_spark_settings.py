"""How a Spark session is configured from the environment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from projections.spark.live import SINK
from projections.spark.session import SparkSettings

pytestmark = pytest.mark.jvm


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


def test_no_patch_is_given_up_or_overtaken_on_its_way_to_kafka() -> None:
    assert int(SINK["kafka.delivery.timeout.ms"]) == int(SINK["kafka.retries"]) == 2**31 - 1
    assert SINK["kafka.enable.idempotence"] == "true"
    assert SINK["kafka.acks"] == "all"
    assert int(SINK["kafka.max.in.flight.requests.per.connection"]) <= 5


DYING = """
from pyspark import SparkContext
from projections.spark.session import SparkSettings, lazy_session

def die():
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()

with lazy_session(SparkSettings(memory="512m"), name="first", threads=1) as session:
    session()
    die()
    print(session().range(7).count())
    die()
print("the end")
"""


def test_after_the_death_of_a_jvm_another_session_starts() -> None:
    done = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "7\nthe end"), done.stderr
