"""The servers as containers of their official images, with the settings of the local stack (`compose/parts/`).

The compose file is made of these, and the containers of tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.compose.parts import elasticsearch, kafka, postgres, valkey
from headwater.compose.settings import HOST
from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import read_lock

KAFKA_INSIDE: Final = 9092
"""The port at which containers of the same network reach Kafka; others reach it at the published one."""
LOOPBACK_ONLY: Final = {"listen_addresses", "unix_socket_directories"}
"""Options of PostgreSQL on the local stack that a container must not have: its network does that."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a server is asked whether it can serve: a command in its container, every some seconds, some times."""

    command: tuple[str, ...]
    every_s: int
    timeout_s: int
    retries: int


@dataclass(frozen=True, slots=True)
class ServerImage:
    """One server. port: the one in the container that is published. data: the folder that a volume keeps."""

    name: str
    image: str
    port: int
    data: str
    health: Health
    memory: str
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    shared_memory: str = ""


def server_images(kafka_address: str) -> tuple[ServerImage, ...]:
    """The servers that every deployment needs, by the names of their local parts.

    kafka_address: `host:port` at which programs outside the containers' network reach Kafka.
    """
    return _kafka(kafka_address), _postgres(), _elasticsearch(), _valkey()


def locked_version(group: str, module: str) -> str:
    """The version of a jar that the local stack runs."""
    return next(want.version for want in read_lock(JAR_LOCK)[group].wants if want.module == module)


def _kafka(address: str) -> ServerImage:
    listeners = {
        "listeners": f"INSIDE://:{KAFKA_INSIDE},PLAINTEXT://:19092,CONTROLLER://:19093",
        "advertised.listeners": f"INSIDE://kafka:{KAFKA_INSIDE},PLAINTEXT://{address}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # the broker reaches itself under its own name, whatever port is published
        "inter.broker.listener.name": "INSIDE",
        "controller.quorum.voters": "1@localhost:19093",
        "node.id": "1",
        "log.dirs": "/var/lib/kafka/data",
    }
    properties = kafka.PROPERTIES | kafka.internal_topics(1) | listeners
    return ServerImage(
        name="kafka",
        image=f"apache/kafka:{locked_version('kafka', 'kafka_2.13')}",
        port=19092,
        data="/var/lib/kafka/data",
        health=Health(
            ("/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server", f"kafka:{KAFKA_INSIDE}"), 5, 10, 24
        ),
        memory="2g",
        environment={
            "CLUSTER_ID": kafka.CLUSTER_ID,
            "KAFKA_HEAP_OPTS": " ".join(kafka.HEAP),
            **{kafka_variable(name): value for name, value in properties.items()},
        },
    )


def kafka_variable(name: str) -> str:
    """The variable with which Kafka's official image takes a property."""
    return f"KAFKA_{name.upper().replace('.', '_')}"


def _postgres() -> ServerImage:
    options = {name: value for name, value in postgres.OPTIONS.items() if name not in LOOPBACK_ONLY}
    return ServerImage(
        name="postgres",
        image="postgres:18",
        port=5432,
        data="/var/lib/postgresql",
        health=Health(("pg_isready", "--host", HOST, "-U", "headwater", "-d", "headwater"), 2, 5, 30),
        memory="2g",
        environment={
            "POSTGRES_USER": "headwater",
            "POSTGRES_DB": "headwater",
            "POSTGRES_HOST_AUTH_METHOD": "trust",
            "POSTGRES_INITDB_ARGS": " ".join(f"--{name}={value}" for name, value in postgres.LOCALE.items()),
        },
        command=("postgres", *(word for name, value in options.items() for word in ("-c", f"{name}={value}"))),
        shared_memory="1g",
    )


def _elasticsearch() -> ServerImage:
    return ServerImage(
        name="elasticsearch",
        image=f"elasticsearch:{locked_version('elasticsearch', 'elasticsearch')}",
        port=9200,
        data="/usr/share/elasticsearch/data",
        health=Health(
            ("curl", "--fail", "--silent", f"http://{HOST}:9200/_cluster/health?wait_for_status=yellow"), 5, 10, 24
        ),
        memory="2g",
        environment={
            "ES_JAVA_OPTS": " ".join(elasticsearch.HEAP),
            **elasticsearch.SETTINGS,
            "xpack.security.enabled": "false",
        },
    )


def _valkey() -> ServerImage:
    return ServerImage(
        name="valkey",
        image="valkey/valkey:8.1",
        port=6379,
        data="/data",
        health=Health(("valkey-cli", "ping"), 2, 5, 30),
        memory="1g",
        command=("valkey-server", *(word for name, value in valkey.KEPT.items() for word in (f"--{name}", value))),
    )
