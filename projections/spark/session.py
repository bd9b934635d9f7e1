"""Spark's session and its settings: small, quick to start, on this machine or on a cluster."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.logs import JSON, TEXT, format_of, process_name
from headwater.eventlog.programs.variables import Variables
from headwater.projections.spark.setup import local
from headwater.projections.spark.setup.jars import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER: Final = re.compile(r"local(\[[0-9*, ]+\])?|local-cluster\[[0-9, ]+\]|(spark|k8s)://[!-~]+|yarn")
_MEMORY: Final = re.compile(r"([0-9]{1,12})([kmgt])b?", re.IGNORECASE | re.ASCII)
_SHIFTS: Final = {"k": 10, "m": 20, "g": 30, "t": 40}
_LOG4J = {
    TEXT: Path(__file__).with_name("log4j2.properties"),
    JSON: Path(__file__).with_name("log4j2_json.properties"),
}
# A query over many views compiles to methods over 8,000 bytes of bytecode, which the JVM would only interpret.
_HUGE_METHODS = "-XX:-DontCompileHugeMethods"
# The optimising compiler took half of a short replay's processor time: only long-running code is worth it, such as
# the live query, which lags under load without optimised code.
_LATE_OPTIMISING = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# To tell a stop from a failure, Spark matches the message of what it interrupted with a regular expression that
# recurses per character. The default stack overflows, with a thousand lines in the log. Unused stack is not memory.
_DEEP_STACKS = "-Xss16m"
_JAVA_OPTIONS = (_HUGE_METHODS, _DEEP_STACKS, "-XX:+UseParallelGC", "-XX:-UsePerfData")

# Each batch query reads with its own consumers, which Spark keeps for 5 minutes, with fetched records: 120 MB per
# replay of 2,000,000 events. After about fifteen replays in that time the heap was full.
_CONSUMER_POOLS = {
    f"spark.kafka.consumer.{pool}.{setting}": "5s"
    for pool in ("cache", "fetchedData.cache")
    for setting in ("timeout", "evictorThreadRunInterval")
}
# Each query of a stream view has a consumer per partition. Of more than 64, the default, Spark closes those that are
# not in use, opens them again in the next batch, and logs a warning each time.
_CONSUMER_POOLS["spark.kafka.consumer.cache.capacity"] = "1000"

# What Python workers print goes to the JVM's standard error. This makes it messages of the logger `stderr`, so that the
# configuration of log4j decides which ones are shown.
_PRINTED = {
    "spark.plugins": "org.apache.spark.deploy.RedirectConsolePlugin",
    "spark.driver.log.redirectConsoleOutputs": "stderr",
    "spark.executor.log.redirectConsoleOutputs": "",
}

TASK_ATTEMPTS = 4
"""How often a local session runs a task before its job fails, as on a cluster: writers replace their earlier writes."""

INTERRUPTED: Final = ("java.lang.InterruptedException", "SPARK_JOB_CANCELLED")
"""What a batch fails with that a stop interrupts."""


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Whether py4j logs something else than what a stop has interrupted; the first is the interruption itself.

    It asks the JVM to end an interrupted call, and that may fail.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or any(reason in str(error) for reason in INTERRUPTED):
            return False
        error = error.__context__
    return True


for _name in (None, "py4j.clientserver"):
    logging.getLogger(_name).addFilter(_is_no_stop)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark runs.

    master: where (`SPARK_MASTER`); empty: in this process's own JVM, with the requested number of threads. memory: of
    the driver, and on a cluster of each executor (`HEADWATER_SPARK_MEMORY`, such as `2g`). java: further options of the
    driver's JVM.
    """

    master: str = ""
    memory: str = "2g"
    java: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> SparkSettings:
        """Read `SPARK_MASTER` and `HEADWATER_SPARK_MEMORY` of `env`; raises SettingError if one is wrong."""
        master = env.get("SPARK_MASTER", "")
        if master and not _MASTER.fullmatch(master):
            raise SettingError(
                "SPARK_MASTER", master, "the address of a cluster, such as spark://host:7077, or local[4]"
            )
        return cls(master=master, memory=SparkVariables.read(env).spark_memory)

    @property
    def is_local(self) -> bool:
        """Whether the executors are threads of the driver's JVM."""
        return not self.master or self.master == "local" or self.master.startswith("local[")

    def options(self, threads: int, *, lasting: bool = False) -> dict[str, str]:
        """Spark's configuration for a session with this many threads if it is local; lasting: see start_session."""
        jars = [str(jar) for jar in spark_jars()]
        optimising = () if lasting else _LATE_OPTIMISING
        # an address, so that a blank in the path of this installation is no end of the option
        log4j = f"-Dlog4j2.configurationFile={_LOG4J[format_of(os.environ)].as_uri()}"
        java = java_options((*_JAVA_OPTIONS, *optimising, log4j, f"-Dheadwater.process={process_name()}"))
        archived = local.archive_options() if self.is_local else ()
        options = {
            "spark.master": self.master or f"local[{threads},{TASK_ATTEMPTS}]",
            "spark.driver.memory": self.memory,
            "spark.executor.memory": self.memory,
            "spark.driver.extraJavaOptions": f"{java} {java_options((*self.java, *archived))}".rstrip(),
            "spark.executor.extraJavaOptions": java,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
            # fields and columns may differ only by case
            "spark.sql.caseSensitive": "true",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.sql.adaptive.enabled": "false",
            # Kafka's second reader counts what it reads, for progress
            "spark.sql.sources.useV1SourceList": "",
            **_CONSUMER_POOLS,
            **_PRINTED,
            "spark.executor.heartbeatInterval": "1s",
            # each level of nested fields that a history changes takes some iterations
            "spark.sql.analyzer.maxIterations": "1000",
            # a constant may contain "${…}": it is text
            "spark.sql.variable.substitute": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
            # the default starts a process per file
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            "spark.pyspark.python": sys.executable,
            # executors on this machine import the same modules as this process, including the user's packages
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path),
            # and in that order: Python would search the current folder first, which may have packages of the same names
            "spark.executorEnv.PYTHONSAFEPATH": "1",
        }
        if self.is_local:
            return options | {
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                # on the JVM's own classpath the connector starts faster than through Spark's class loader
                "spark.driver.extraClassPath": os.pathsep.join(jars),
                # Hadoop's own starts `chmod` for each file of a checkpoint, some twenty per batch, 4 ms each
                "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            }
        loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        return options | {"spark.jars": ",".join(jars)} | (loopback if self.master.startswith("local") else {})


def java_options(options: Iterable[str]) -> str:
    """Options of a JVM as Spark splits them again: one with a blank, as in a path, is quoted."""
    escaped = (option.replace("\\", "\\\\").replace('"', '\\"') if " " in option else option for option in options)
    return " ".join(f'"{option}"' if " " in option else option for option in escaped)


def _check_memory(value: str) -> str:
    memory_match = _MEMORY.fullmatch(value)
    if memory_match is None or not 2**29 <= int(memory_match[1]) << _SHIFTS[memory_match[2].lower()] <= 2**40:
        raise ValueError("a JVM does not start with it")
    return value


class SparkVariables(Variables):
    """The variables of SparkSettings whose names begin like Headwater's own."""

    spark_memory: Annotated[str, AfterValidator(_check_memory)] = Field(
        "2g", description="an amount of memory, such as 2g, from 512m to 1t"
    )


def start_session(
    settings: SparkSettings, *, name: str, threads: int, lasting: bool = False, state: Path | None = None
) -> SparkSession:
    """The session of this process.

    threads: of a local master; the live query uses one per source partition, so give it two more than these. lasting:
    it will run the same code for hours, so the code is optimised soon. state: the folder of local state, in which a
    local session has its working files; None: in that of temporary files.
    """
    # half a second that only those who need Spark pay
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if settings.is_local:
        # without it Spark looks for an address of this machine that others can reach, and warns if it finds none
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_HOME", str(local.spark_home()))
    conf = SparkConf().setAppName(name).setAll(list(settings.options(threads, lasting=lasting).items()))
    if settings.is_local and state is not None and (folder := local.working_folder(state)) is not None:
        conf.set("spark.local.dir", str(folder))
        # libraries unpack themselves there; in a container the folder of temporary files may be read-only
        temporary = java_options((f"-Djava.io.tmpdir={folder}",))
        conf.set("spark.driver.extraJavaOptions", f"{conf.get('spark.driver.extraJavaOptions')} {temporary}")
    # An interruption waits for this thread: a JVM whose start is given up stays for ever. And only in the main thread,
    # Spark would handle SIGINT: by a call to the JVM, perhaps in the middle of another one, which then fails.
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(SparkContext.getOrCreate, conf).result()
    return SparkSession.builder.config(conf=conf).getOrCreate()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT wait until the block ends: the JVM would end the call alone, and nobody would know of its result."""
    if threading.current_thread() is not threading.main_thread():  # which is interrupted
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def lazy_session(
    settings: SparkSettings, *, name: str, threads: int, state: Path | None = None
) -> Iterator[Callable[[], SparkSession]]:
    """A session that starts at its first use, and again if its JVM has died. At the end it is stopped with its JVM.

    state: see start_session.
    """
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if started and has_died():
            end(started.pop())
        if not started:
            started.append(start_session(settings, name=name, threads=threads, state=state))
        return started[0]

    try:
        yield session
    finally:
        for running in started:
            end(running)


class SharedSession:
    """A lazy session that several threads use: it ends with the last context that is open."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Callable[[], SparkSession]]]) -> None:
        self._opened, self._lock, self._users = opened, threading.Lock(), 0
        self._closing = ExitStack()

    @contextmanager
    def used(self) -> Iterator[Callable[[], SparkSession]]:
        """A context that gives the session at its first use."""
        with self._lock:
            if not self._users:
                self._session = self._closing.enter_context(self._opened())
            self._users += 1
        try:
            yield self._get
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._closing.close()

    def _get(self) -> SparkSession:
        with self._lock:
            return self._session()


def has_died() -> bool:
    """Whether this process's JVM has ended."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway
    return gateway is not None and gateway.proc.poll() is not None


def end(session: SparkSession, within_s: float = 30.0) -> None:
    """Stop a session and its JVM, which would otherwise keep its memory until this process ends."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway = SparkContext._gateway
    with suppress(Py4JError, OSError):  # its JVM may have died
        # a part that sends its heartbeat to one that has ended prints a stack trace
        session.sparkContext.setLogLevel("OFF")
        session.stop()
    SparkContext._active_spark_context = SparkSession._instantiatedSession = None
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    gateway.proc.wait(within_s)
    SparkContext._gateway = SparkContext._jvm = None
