"""More than one machine, as processes that share nothing but the network: Kafka brokers, a Spark master and workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from compose.parts import kafka
from compose.ports import free_port, free_ports
from compose.settings import HOST, StackSettings
from compose.stack import fetch_jars
from projections.supervision.process import ProcessSpec
from projections.supervision.supervisor import Supervisor
from tests.conftest import listens

BROKERS, WORKERS = 3, 3
SPARK = Path(pyspark.__file__).parent


class Machines:
    """Where the brokers and the master are; kill(name) is a machine that goes away for good."""

    def __init__(self, supervisor: Supervisor, bootstrap: str, master: str) -> None:
        self.bootstrap, self.master = bootstrap, master
        self._supervisor = supervisor

    def kill(self, name: str) -> None:
        """End `kafka-2`, `worker-1` and so on without a word, if it runs; nothing starts it again."""
        self._supervisor[name].kill()
        self._supervisor[name].stop()


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    nodes = [kafka.Node(number, free_port(), free_port()) for number in range(1, BROKERS + 1)]
    port = free_port()
    master = f"spark://{HOST}:{port}"
    specs = kafka.cluster(StackSettings(folder, free_ports()), fetch_jars()["kafka"], nodes)
    specs.append(_spark(folder, "master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"))
    for number in range(1, WORKERS + 1):
        worker = ("--host", HOST, "--webui-port", "0", "--cores", "4", "--memory", "1500m", "--work-dir")
        where = folder / f"worker-{number}"
        specs.append(_spark(folder, where.name, "worker.Worker", *worker, str(where), master, after=("master",)))
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
