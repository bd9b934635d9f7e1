"""The compose file has the versions, ports and options of the local stack."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.compose.containers import health
from headwater.compose.parts import connect, elasticsearch, kafka, postgres, valkey
from headwater.compose.settings import COMPOSE_FILE, Ports, StackSettings
from headwater.compose.stack import JAR_LOCK
from headwater.compose.testing.servers import read_services
from headwater.projections.spark.setup.jars import read_lock
from tests.support.helm_chart import DRAIN_S, STOP_S

FILE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, Any] = FILE["services"]
SERVERS = ("kafka", "postgres", "elasticsearch", "valkey")
APP = tuple(STOP_S)
OURS = (*APP, "sources")
LISTENERS = {"listener.security.protocol.map", "inter.broker.listener.name"}
"""What differs in a container: programs inside and outside its network reach Kafka, so it has one more listener."""
LOOPBACK_ONLY = {"listen_addresses", "unix_socket_directories"}
"""Options of PostgreSQL on the local stack that a container must not have: its network does that."""


@pytest.mark.parametrize("service", SERVERS)
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
    assert SERVICES["connect"]["image"].endswith(f"/connect:{wanted['debezium-connector-postgres']}")


def test_kafka_has_the_same_properties() -> None:
    given = SERVICES["kafka"]["environment"]
    properties = kafka.PROPERTIES | kafka.internal_topics(1)
    expected = {
        f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items() if name not in LISTENERS
    }
    assert {name: given.get(name) for name in expected} == expected


def test_programs_inside_and_outside_the_network_reach_kafka() -> None:
    given = SERVICES["kafka"]["environment"]
    pairs = [each.split("://") for each in given["KAFKA_ADVERTISED_LISTENERS"].split(",")]
    advertised = {name: address for name, address in pairs}
    assert (
        advertised["INSIDE"]
        == SERVICES["api"]["environment"]["HEADWATER_KAFKA"]
        == f"{SERVICES['kafka']['hostname']}:9092"
    )
    assert advertised["PLAINTEXT"] == f"127.0.0.1:${{{Ports.variable('kafka')}:-{Ports().kafka}}}"
    assert given["KAFKA_INTER_BROKER_LISTENER_NAME"] == "INSIDE", "the published port is not one of the container"


def test_postgres_has_the_same_options() -> None:
    given = {word for word in SERVICES["postgres"]["command"] if "=" in word}
    assert given == {f"{name}={value}" for name, value in postgres.OPTIONS.items() if name not in LOOPBACK_ONLY}


def test_postgres_makes_its_cluster_with_the_same_encoding_and_locale() -> None:
    """Without the encoding, initdb takes that of the locale C, and refuses the built-in locale."""
    given = SERVICES["postgres"]["environment"]["POSTGRES_INITDB_ARGS"].split()
    assert given == [f"--{name}={value}" for name, value in postgres.LOCALE.items()]
    assert "--encoding=UTF8" in given


def test_elasticsearch_has_the_same_settings_and_all_have_the_same_heaps() -> None:
    given = {name: SERVICES[name]["environment"] for name in ("kafka", "elasticsearch")}
    assert given["elasticsearch"].items() >= elasticsearch.SETTINGS.items()
    assert given["elasticsearch"]["ES_JAVA_OPTS"].split() == list(elasticsearch.HEAP)
    assert given["kafka"]["KAFKA_HEAP_OPTS"].split() == list(kafka.HEAP)
    assert given["kafka"]["CLUSTER_ID"] == kafka.CLUSTER_ID


def test_connect_has_the_same_properties_version_and_port() -> None:
    given = SERVICES["connect"]["environment"]
    names = {name: name.upper().replace(".", "_") for name in connect.PROPERTIES}
    actual = {name: given.get(f"CONNECT_{upper}", given.get(upper)) for name, upper in names.items()}
    assert actual == connect.PROPERTIES
    assert given["HEAP_OPTS"].split() == list(connect.HEAP)
    port = f"${{{Ports.variable('connect')}:-{Ports().connect}}}"
    assert given["CONNECT_LISTENERS"] == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("service", ["connect", "sources"])
def test_what_captures_uses_the_addresses_of_programs_on_this_machine(service: str) -> None:
    given = SERVICES[service]
    port = f"${{{Ports.variable('kafka')}:-{Ports().kafka}}}"
    kafka_address = given["environment"].get("BOOTSTRAP_SERVERS", given["environment"].get("HEADWATER_KAFKA"))
    assert (given["network_mode"], kafka_address) == ("host", f"127.0.0.1:{port}")


def test_valkey_keeps_data_the_same_way(tmp_path: Path) -> None:
    local = valkey.spec(StackSettings(tmp_path)).argv
    given = SERVICES["valkey"]["command"][1:]
    assert " ".join(given) in " ".join(local)


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_restarts_has_a_limit_and_a_version(service: str) -> None:
    given = SERVICES[service]
    assert given["restart"] == "unless-stopped" and given["mem_limit"]
    image = given["image"].removeprefix("${HEADWATER_IMAGE:-").removesuffix("}")
    assert re.search(r":\d", image) and not image.endswith("latest")
    names = [record.partition(":")[0] for record in given.get("volumes", ())]
    assert set(names) <= set(FILE["volumes"])


@pytest.mark.parametrize("program", OURS)
def test_a_program_of_headwater_may_write_its_state_and_nothing_else(program: str) -> None:
    given = SERVICES[program]
    assert given["read_only"] is True and given["cap_drop"] == ["ALL"]
    assert given["volumes"] == [f"{program}-state:/var/lib/headwater"]
    assert set(given["profiles"]) & {"app", "app-capture"} and given["stop_grace_period"].endswith("s")


@pytest.mark.parametrize("program", OURS)
def test_a_program_starts_once_the_servers_that_it_needs_are_healthy(program: str) -> None:
    for server, condition in SERVICES[program]["depends_on"].items():
        assert condition == {"condition": "service_healthy"} and "healthcheck" in SERVICES[server]
        own = set(SERVICES[program]["profiles"])
        assert own <= set(SERVICES[server].get("profiles", own))
    check = SERVICES[program].get("healthcheck", {"test": ["ready"]})["test"][-1]
    assert check in health.CHECKS


def test_the_api_is_reached_from_this_machine_only() -> None:
    assert SERVICES["api"]["ports"] == ["127.0.0.1:${HEADWATER_API_PORT:-18080}:18080"]
    assert [name for name in APP if "ports" in SERVICES[name]] == ["api"]


def test_programs_have_the_time_that_they_may_take_to_stop_and_the_image_of_this_version() -> None:
    for name, seconds in STOP_S.items():
        assert SERVICES[name]["stop_grace_period"] == f"{seconds - (DRAIN_S if name == 'api' else 0)}s"
    assert {SERVICES[name]["image"] for name in OURS} == {f"${{HEADWATER_IMAGE:-headwater:{version('headwater')}}}"}


def test_containers_of_tests_have_the_ports_that_are_given() -> None:
    kafka_service = read_services({"HEADWATER_KAFKA_PORT": "1234"})["kafka"]
    assert kafka_service["ports"] == ["127.0.0.1:1234:19092"]
    assert kafka_service["environment"]["KAFKA_ADVERTISED_LISTENERS"].endswith("//127.0.0.1:1234")
    assert read_services({})["postgres"]["ports"] == [f"127.0.0.1:{Ports().postgres}:5432"]
