"""Kafka 4.3.1: one node that is broker and controller (KRaft), from Maven artifacts."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from compose.errors import ComposeError
from compose.parts import wheels
from compose.settings import HOST, StackSettings
from projections.supervision.process import ProcessSpec

_LOG4J = Path(__file__).with_name("kafka-log4j2.properties")
# Identifiers need not differ between local stacks: each has its own ports and never meets another.
_CLUSTER_ID = "aGVhZHdhdGVyLWxvY2FsLQ"

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # one node
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # librdkafka speaks the older transaction protocol: the broker itself must check each partition
    "transaction.partition.verification.enable": "true",
    # the transaction of a killed handler holds every reader back: look for expired ones often (10 s by default)
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


def spec(settings: StackSettings, jars: Sequence[Path]) -> ProcessSpec:
    """How the broker runs; `jars` is its classpath."""
    java, data = wheels.java(), settings.state / "kafka"
    config = settings.state / "kafka.properties"
    environment = {"CLASSPATH": os.pathsep.join(map(str, jars))}
    options = ["-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"]
    native = ["--enable-native-access=ALL-UNNAMED", f"-Dlog4j2.configurationFile={_LOG4J}"]
    return ProcessSpec(
        name="kafka",
        argv=(str(java), *options, *native, "kafka.Kafka", str(config)),
        env=environment,
        log=settings.logs / "kafka.log",
        prepare=lambda: _prepare(settings, java, environment, config, data),
        probe=lambda: _probe(settings.ports.kafka),
        stop_timeout_s=30.0,
    )


def _prepare(settings: StackSettings, java: Path, environment: dict[str, str], config: Path, data: Path) -> None:
    settings.state.mkdir(parents=True, exist_ok=True)
    config.write_text(_properties(settings, data))
    if (data / "meta.properties").exists():
        return
    shutil.rmtree(data, ignore_errors=True)  # a format that was interrupted
    command = [str(java), "-Xshare:auto", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={_LOG4J}"]
    command += ["kafka.tools.StorageTool", "format", "--cluster-id", _CLUSTER_ID, "--config", str(config)]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise ComposeError(f"Kafka's storage could not be formatted: {(ran.stderr or ran.stdout).strip()[-500:]}")


def _properties(settings: StackSettings, data: Path) -> str:
    broker, controller = settings.ports.kafka, settings.ports.kafka_controller
    here = {
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
    }
    return "".join(f"{name}={value}\n" for name, value in (PROPERTIES | here).items())


def _probe(port: int) -> str | None:
    try:
        # First plainly: an AdminClient without a broker would report to standard error.
        socket.create_connection((HOST, port), timeout=2).close()
        client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        client.list_topics(timeout=2)
    except (OSError, KafkaException) as error:
        return str(error)
    return None
