"""How a Spark session is configured from the environment."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.programs.logs import TEXT
from headwater.projections.spark import session as spark_session
from headwater.projections.spark.live import SINK
from headwater.projections.spark.session import SharedSession, SparkSettings
from headwater.projections.spark.setup import local
from tests.support.spark_rows import session

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


def test_a_blank_in_the_path_of_the_installation_is_no_end_of_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "my house").mkdir()
    monkeypatch.setattr(spark_session, "_LOG4J", {TEXT: folder / "log4j2.properties"})
    monkeypatch.setattr(local, "archive_options", lambda: (f"-XX:SharedArchiveFile={folder}/a.jsa", "-Xlog:cds*=off"))
    recording = (f'-XX:ArchiveClassesAtExit={folder}/"quoted" \\ one.part',)
    options = SparkSettings(java=recording).options(2)["spark.driver.extraJavaOptions"]
    # Spark splits them as a shell does
    words = shlex.split(options)
    assert words[-3:] == [*recording, f"-XX:SharedArchiveFile={folder}/a.jsa", "-Xlog:cds*=off"]
    assert f"-Dlog4j2.configurationFile={folder.as_uri()}/log4j2.properties" in words
    jvm = session()._jvm
    assert jvm is not None
    parsed = jvm.org.apache.spark.util.Utils.splitCommandString(options)
    assert [parsed.apply(number) for number in range(parsed.size())] == words


def test_files_of_checkpoints_are_written_without_a_process_each() -> None:
    jvm = session()._jvm
    assert jvm is not None
    files = jvm.org.apache.hadoop.fs.FileSystem.get(session()._jsparkSession.sparkContext().hadoopConfiguration())
    assert files.getClass().getSimpleName() == "BareLocalFileSystem"


def test_no_patch_is_given_up_or_overtaken_on_its_way_to_kafka() -> None:
    assert int(SINK["kafka.delivery.timeout.ms"]) == int(SINK["kafka.retries"]) == 2**31 - 1
    assert SINK["kafka.enable.idempotence"] == "true"
    assert SINK["kafka.acks"] == "all"
    assert int(SINK["kafka.max.in.flight.requests.per.connection"]) <= 5


DYING = """
import sys
from pyspark import SparkContext
from headwater.projections.spark.session import SparkSettings, lazy_session

PRINTED = sys.argv[1:]

def die():
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()

with lazy_session(SparkSettings(memory="512m"), name="first", threads=1) as session:
    err = session()._jvm.java.lang.System.err
    err.print("\\n".join(PRINTED[:-3]) + "\\n\\n")
    err.print("\\n".join(PRINTED[:3] + PRINTED[-3:]) + "\\n")
    for line in PRINTED:
        err.println(line)
    die()
    print(session().range(7).count())
    die()
print("the end")
"""


@pytest.mark.complete
def test_after_the_death_of_a_jvm_another_session_starts() -> None:
    printed = [
        *printed_by_spark_s_workers(),
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        "KeyError: 1",
    ]
    done = subprocess.run([sys.executable, "-c", DYING, *printed], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.strip()) == (0, "7\nthe end"), done.stderr
    shown = [line for line in done.stderr.splitlines() if line in printed or "TransformWithState" in line]
    first, *others = printed[-3:]
    assert [line for line in shown if line != first] == [*others, *others]
    assert shown.count(first) >= 2, "the connection to the JVM that has died may have one, too"


INTERRUPTED = """
import os, signal, sys, threading, time
from pyspark.sql import SparkSession
from headwater.projections.spark.session import SparkSettings, start_session

sleep, init = time.sleep, SparkSession.__init__

def interrupt():
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])

def starting(seconds):  # py4j's JVM is awaited like this
    time.sleep = sleep
    interrupt()
    sleep(seconds)

def started(session, context, **options):
    threading.Timer(0.1, interrupt).start()
    context._jvm.java.lang.Thread.sleep(60_000)
    init(session, context, **options)

def terminate(*_):
    raise SystemExit(7)

signal.signal(signal.SIGTERM, terminate)
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
if sys.argv[2] == "JVM":
    time.sleep = starting
else:
    SparkSession.__init__ = started
try:
    start_session(SparkSettings(memory="512m"), name="interrupted", threads=1)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.complete
@pytest.mark.parametrize(("sent", "during"), [("SIGINT", "JVM"), ("SIGTERM", "JVM"), ("SIGINT", "session")])
def test_a_start_that_is_interrupted_leaves_no_jvm_and_says_nothing(sent: str, during: str) -> None:
    # one that is left would hold the pipes open
    words = [sys.executable, "-c", INTERRUPTED, sent, during]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 7, done.stderr
    assert "Exception" not in done.stderr
    assert "Traceback" not in done.stderr


def printed_by_spark_s_workers() -> list[str]:
    """What a Python worker of Spark prints in each batch, by its source: literal parts of it, and blank lines."""
    worker = import_module("pyspark.sql.streaming.transform_with_state_driver_worker")
    calls = re.findall(r'print\(\s*f"([^"]+)"', inspect.getsource(worker))
    assert len(calls) > 3
    name = "Streaming TransformWithStateInPandas Python worker"
    assert name in inspect.getsource(worker)
    return [line for text in calls for line in text.replace("{log_name}", name).replace("\\n", "\n").splitlines()]


LOGGING = """
import os, sys
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.projections.spark.session import SparkSettings, lazy_session
log_to_stderr(os.environ, "live")
with lazy_session(SparkSettings(memory="512m"), name="first", threads=1) as session:
    jvm = session()._jvm
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.kafka.Here")
    logger.warn('it "failed"\\nin two lines', jvm.java.lang.IllegalStateException("why"))
    logger.info("not shown")
    for line in sys.argv[1:]:
        jvm.java.lang.System.err.println(line)
"""


@pytest.mark.complete
def test_spark_logs_lines_of_json_as_the_process_does_if_that_is_set() -> None:
    printed = [*printed_by_spark_s_workers(), "what a worker prints", '{"a": "b"}']
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, *printed],
        env=os.environ | {"HEADWATER_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    said_by_the_jvm = ("WARNING: Using incubator modules", "Picked up JAVA_TOOL_OPTIONS")  # before it has a log
    lines = [json.loads(line) for line in done.stderr.splitlines() if not line.startswith(said_by_the_jvm)]
    assert all(line["process"] == "live" and line["time"].endswith("Z") for line in lines), done.stderr
    (failed,) = (line for line in lines if line["logger"] == "org.apache.kafka.Here")
    assert (failed["level"], failed["message"]) == ("WARNING", 'it "failed"\nin two lines')
    assert "IllegalStateException: why" in failed["error"]
    assert [line["message"].strip() for line in lines if line["logger"] == "stderr"] == printed[-2:]


def test_a_session_that_is_shared_ends_with_the_last_that_uses_it() -> None:
    steps, stack = list[str](), ExitStack()

    @contextmanager
    def opened() -> Iterator[Callable[[], Any]]:
        steps.append("opened")
        yield lambda: "session"
        steps.append("ended")

    shared = SharedSession(opened)
    with shared.used() as first:
        with shared.used() as second:
            found: list[Any] = [first(), second()]
            assert found == ["session"] * 2
        assert steps == ["opened"]
        stack.enter_context(shared.used())
    assert steps == ["opened"]
    stack.close()
    assert steps == ["opened", "ended"]
    with shared.used():
        assert steps == ["opened", "ended", "opened"]
