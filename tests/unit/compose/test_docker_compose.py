"""The compose file says what the local stack's parts say: same versions, ports and settings."""

import re
from pathlib import Path

import pytest
import yaml

import compose
from compose.parts import connect, kafka, postgres, valkey
from compose.settings import Ports, StackSettings
from compose.stack import JAR_LOCK
from projections.spark.setup.jars import read_lock

SERVICES = yaml.safe_load((Path(compose.__file__).parent / "docker-compose.yml").read_text())["services"]
LOOPBACK_ONLY = {"listen_addresses", "unix_socket_directories"}  # in a container, its own network does that


@pytest.mark.parametrize("service", ["kafka", "postgres", "elasticsearch", "valkey"])
def test_ports_are_the_same_and_on_loopback(service: str) -> None:
    (mapping,) = SERVICES[service]["ports"]
    parts = re.match(r"([\d.]+):\$\{(\w+):-(\d+)\}:\d+$", mapping)
    assert parts, mapping
    address, variable, default = parts.groups()
    assert address == "127.0.0.1"
    assert variable == Ports.variable(service)
    assert int(default) == getattr(Ports(), service)


def test_java_servers_have_the_locked_versions() -> None:
    wanted = {want.module: want.version for group in read_lock(JAR_LOCK).values() for want in group.wants}
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{wanted['kafka_2.13']}"
    assert SERVICES["elasticsearch"]["image"] == f"elasticsearch:{wanted['elasticsearch']}"


def test_kafka_has_the_same_properties() -> None:
    given = SERVICES["kafka"]["environment"]
    properties = kafka.PROPERTIES | kafka.internal_topics(1)
    expected = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    assert {name: given.get(name) for name in expected} == expected


def test_postgres_has_the_same_options() -> None:
    given = {word for word in SERVICES["postgres"]["command"] if "=" in word}
    assert given == {f"{name}={value}" for name, value in postgres.OPTIONS.items() if name not in LOOPBACK_ONLY}


def test_connect_has_the_same_properties_version_and_port() -> None:
    service, given = SERVICES["connect"], SERVICES["connect"]["environment"]
    wanted = {want.module: want.version for want in read_lock(JAR_LOCK)["connect-debezium"].wants}
    assert service["image"].endswith(f"/connect:{wanted['debezium-connector-postgres']}")
    names = {name: name.upper().replace(".", "_") for name in connect.PROPERTIES}
    actual = {name: given.get(f"CONNECT_{upper}", given.get(upper)) for name, upper in names.items()}
    assert actual == connect.PROPERTIES
    assert given["HEAP_OPTS"].split() == list(connect.HEAP)
    port = f"${{{Ports.variable('connect')}:-{Ports().connect}}}"
    assert given["CONNECT_LISTENERS"] == f"http://127.0.0.1:{port}"


def test_connect_uses_the_addresses_of_the_other_processes() -> None:
    service = SERVICES["connect"]
    port = f"${{{Ports.variable('kafka')}:-{Ports().kafka}}}"
    assert (service["network_mode"], service["environment"]["BOOTSTRAP_SERVERS"]) == ("host", f"127.0.0.1:{port}")


def test_valkey_keeps_data_the_same_way(tmp_path: Path) -> None:
    local = valkey.spec(StackSettings(tmp_path)).argv
    given = SERVICES["valkey"]["command"][1:]
    assert " ".join(given) in " ".join(local)
