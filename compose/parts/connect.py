"""Kafka Connect 4.2.0 with Debezium's connectors: one distributed worker, from Maven artifacts."""

import os
import shutil
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path

from headwater.compose.parts.installation import archive_options, java
from headwater.compose.probes import http_problem
from headwater.compose.samples.shop_database import create_shop
from headwater.compose.settings import HOST, StackSettings
from headwater.projections.supervision.process import ProcessSpec

_LOG4J = Path(__file__).with_name("connect-log4j2.properties")

PROPERTIES = {
    "group.id": "connect",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    # plain JSON: the declaration of a captured table has the types
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "producer.max.request.size": str(4 << 20),  # the broker's limit
    # a killed worker's open transaction holds back every reader of these topics, the next worker too (60 s by default)
    "producer.transaction.timeout.ms": "10000",
    # a killed worker's connectors start again as soon as the broker has noticed: by default after 10 s and 5 min more
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "2000",
    "scheduled.rebalance.max.delay.ms": "0",
}
HEAP = ("-Xms128m", "-Xmx384m")


def spec(settings: StackSettings, jars: Sequence[Path], plugins: Mapping[str, Sequence[Path]]) -> ProcessSpec:
    """How the worker runs. Its connectors and their offsets are in Kafka.

    jars: its classpath, which has no connector: one there would also be visible to those with a class loader of their
    own, in another version. plugins: the jars of each class loader of connectors, by name.
    """
    config, folder = settings.state / "connect.properties", settings.state / "connect-plugins"
    here = {
        "bootstrap.servers": settings.endpoints.kafka,
        "listeners": settings.endpoints.connect,
        "rest.advertised.host.name": HOST,
        "plugin.path": str(folder),
    }
    archive = archive_options("connect", jars)
    options = [*archive, *HEAP, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"]
    native = ["--enable-native-access=ALL-UNNAMED", f"-Dlog4j2.configurationFile={_LOG4J}"]
    return ProcessSpec(
        name="connect",
        argv=(
            str(java()),
            *options,
            *native,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(config),
        ),
        env={"CLASSPATH": os.pathsep.join(map(str, jars))},
        log=settings.logs / "connect.log",
        prepare=lambda: _prepare(config, PROPERTIES | here, settings.endpoints.postgres, folder, plugins),
        # `/health` of KIP-1017: it is a member of its group, and reads its topics
        probe=lambda: http_problem(HTTPConnection(HOST, settings.ports.connect, timeout=3), "/health"),
        after=("kafka", "postgres"),
        stop_timeout_s=30.0,
    )


def _prepare(
    config: Path, properties: dict[str, str], server: str, folder: Path, plugins: Mapping[str, Sequence[Path]]
) -> None:
    config.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # other versions may have left other jars
    for name, jars in plugins.items():
        (folder / name).mkdir(parents=True)
        for jar in jars:
            (folder / name / jar.name).symlink_to(jar)
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    create_shop(server)  # what the sample captures
