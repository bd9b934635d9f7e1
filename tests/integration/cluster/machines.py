"""More than one machine, as processes that share nothing but the network: Kafka brokers, a Spark master and workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pyspark

from headwater.compose.parts import kafka
from headwater.compose.ports import free_port, free_ports
from headwater.compose.settings import HOST, StackSettings
from headwater.compose.stack import fetch_jars
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.log import KafkaLog
from headwater.projections.supervision.process import ProcessSpec
from headwater.projections.supervision.supervised import Supervisor
from headwater.projections.table.expressions import Source
from tests.conftest import listens
from tests.support.logged import append, logged, settle
from tests.support.waiting import eventually

BROKERS, WORKERS = 3, 3
SPARK = Path(pyspark.__file__).parent
BOUND_S: Final = 900.0
"""A session on a cluster takes a minute to start, and more on a busy machine; after a loss it starts again."""
Found = TypeVar("Found")


class Machines:
    """Where the brokers and the master are ("": there is none); kill(name) is a machine that goes away for good."""

    def __init__(self, supervisor: Supervisor, bootstrap: str, master: str) -> None:
        self.bootstrap, self.master = bootstrap, master
        self._supervisor = supervisor

    def kill(self, name: str) -> None:
        """End `kafka-2`, `worker-1` and so on without a word, if it runs; nothing starts it again."""
        self._supervisor[name].kill()
        self._supervisor[name].stop()


@contextmanager
def machines(folder: Path, workers: int = WORKERS) -> Iterator[Machines]:
    """Three brokers, and so many workers of Spark with their master."""
    nodes = [kafka.Node(number, free_port(), free_port()) for number in range(1, BROKERS + 1)]
    specs = kafka.cluster(StackSettings(folder, free_ports()), fetch_jars()["kafka"], nodes)
    master = ""
    if workers:
        port = free_port()
        master = f"spark://{HOST}:{port}"
        where = ("--host", HOST, "--port", str(port), "--webui-port", "0")
        specs.append(_spark(folder, "master", "master.Master", *where))
    for number in range(1, workers + 1):
        worker = ("--host", HOST, "--webui-port", "0", "--cores", "4", "--memory", "1500m", "--work-dir")
        work = folder / f"worker-{number}"
        specs.append(_spark(folder, work.name, "worker.Worker", *worker, str(work), master, after=("master",)))
    supervisor = Supervisor(specs)
    supervisor.start()
    started = Machines(supervisor, ",".join(f"{HOST}:{node.port}" for node in nodes), master)
    try:
        yield started
    finally:
        for spec in specs:  # brokers that have lost others would take half a minute to leave
            started.kill(spec.name)


def _spark(folder: Path, name: str, main: str, *words: str, after: tuple[str, ...] = ()) -> ProcessSpec:
    probed = int(words[words.index("--port") + 1]) if "--port" in words else None
    return ProcessSpec(
        name=name,
        argv=(str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *words),
        # of a checkout that is not installed, the workers' Python must find the modules as this one does
        env={"SPARK_HOME": str(SPARK), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": HOST},
        log=folder / "logs" / f"{name}.log",
        probe=lambda: None if probed is None or listens(probed) else "it does not listen yet",
        after=after,
    )


def append_once(log: KafkaLog, sources: Sequence[Source]) -> None:
    """Append what is not in the log yet, again where a broker is lost in the middle; no event twice."""

    def appended() -> bool:
        try:
            settle(log)
            known = {source.envelope.id for source in logged(log)}
            missing = [source for source in sources if source.envelope.id not in known]
            append(log, missing)
        except EventLogError:
            return False
        return not missing

    eventually(appended, "all is appended", BOUND_S)


def read_again(read: Callable[[], Found]) -> Found:
    """What is in the log, once Kafka answers: after the loss of a broker, others must become leaders first."""

    def found() -> list[Found]:
        try:
            return [read()]
        except EventLogError:
            return []

    return eventually(found, "the log can be read", BOUND_S)[0]
