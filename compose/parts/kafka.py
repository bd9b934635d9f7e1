"""Kafka 4.2.0: nodes that are broker and controller (KRaft), from Maven artifacts. The local stack has one."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.compose.errors import ComposeError
from headwater.compose.parts.installation import archive_options, java
from headwater.compose.probes import KeptProbe
from headwater.compose.settings import HOST, StackSettings
from headwater.projections.supervision.process import ProcessSpec

LOG4J = Path(__file__).with_name("kafka-log4j2.properties")
# Identifiers need not differ between local stacks: each has its own ports and never meets another.
CLUSTER_ID = "aGVhZHdhdGVyLWxvY2FsLQ"
HEAP = ("-Xms256m", "-Xmx1g")
ERRORS = (OSError, KafkaException)
"""What a broker that cannot serve requests is known by."""

PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    # librdkafka speaks the older transaction protocol: the broker itself must check each partition
    "transaction.partition.verification.enable": "true",
    # the transaction of a killed handler delays every reader: check for expired ones often (10 s by default)
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "message.max.bytes": str(4 << 20),
    "replica.fetch.max.bytes": str(4 << 20),
    "log.cleaner.enable": "true",
    "log.cleaner.threads": "1",
    "log.segment.bytes": str(256 << 20),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "metadata.log.segment.bytes": str(16 << 20),
}


def internal_topics(nodes: int) -> dict[str, str]:
    """The number of copies of Kafka's own topics, and on how many of them a record must be."""
    copies, enough = str(min(3, nodes)), str(min(3, nodes) // 2 + 1)
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": enough,
    }


@dataclass(frozen=True, slots=True)
class Node:
    """One of a cluster's nodes: its number, from 1, and its ports."""

    number: int
    port: int
    controller_port: int


def spec(settings: StackSettings, jars: Sequence[Path]) -> ProcessSpec:
    """How the stack's one broker runs; `jars` is its classpath."""
    (one,) = cluster(settings, jars, [Node(1, settings.ports.kafka, settings.ports.kafka_controller)])
    return one


def cluster(settings: StackSettings, jars: Sequence[Path], nodes: Sequence[Node]) -> list[ProcessSpec]:
    """How the nodes of one cluster run, each with its own data; internal topics have up to three copies."""
    return [_node(settings, jars, node, nodes) for node in nodes]


def _node(settings: StackSettings, jars: Sequence[Path], node: Node, nodes: Sequence[Node]) -> ProcessSpec:
    name = "kafka" if node.number == 1 else f"kafka-{node.number}"
    program, data, config = str(java()), settings.state / name, settings.state / f"{name}.properties"
    environment = {"CLASSPATH": os.pathsep.join(map(str, jars))}
    archive = archive_options("kafka", jars)
    options = [*archive, *HEAP, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"]
    native = ["--enable-native-access=ALL-UNNAMED", f"-Dlog4j2.configurationFile={LOG4J}"]
    return ProcessSpec(
        name=name,
        argv=(program, *options, *native, "kafka.Kafka", str(config)),
        env=environment,
        log=settings.logs / f"{name}.log",
        prepare=lambda: _prepare(_properties(node, nodes, data), [program, *archive], environment, config, data),
        probe=KeptProbe(lambda: _connected(node.port), _ask, ERRORS),
        stop_timeout_s=30.0,
    )


def _prepare(properties: str, java: Sequence[str], environment: dict[str, str], config: Path, data: Path) -> None:
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(properties)
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(data, ignore_errors=True)  # a format that was interrupted
    command = [*java, "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", "--enable-native-access=ALL-UNNAMED"]
    command += [f"-Dlog4j2.configurationFile={LOG4J}"]
    command += ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(config)]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise ComposeError(f"Kafka's storage could not be formatted: {(ran.stderr or ran.stdout).strip()[-500:]}")


def _properties(node: Node, nodes: Sequence[Node], data: Path) -> str:
    here = {
        "node.id": str(node.number),
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "controller.quorum.voters": ",".join(f"{broker.number}@{HOST}:{broker.controller_port}" for broker in nodes),
    }
    return "".join(f"{name}={value}\n" for name, value in (PROPERTIES | internal_topics(len(nodes)) | here).items())


def probe(port: int) -> str | None:
    """None if the server can serve requests, else the reason."""
    return KeptProbe(lambda: _connected(port), _ask, ERRORS)()


def _connected(port: int) -> AbstractContextManager[AdminClient]:
    # Connect to the port first, because an AdminClient without a broker would print errors.
    socket.create_connection((HOST, port), timeout=2).close()
    return nullcontext(AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}))


def _ask(client: AdminClient) -> None:
    client.list_topics(timeout=2)
