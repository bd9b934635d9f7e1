"""The compose file is what the code makes of the local stack's settings: same versions, ports and options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.compose.containers import compose_file, health
from headwater.compose.containers.programs import INSIDE, PROGRAMS, STATE
from headwater.compose.containers.servers import LOOPBACK_ONLY, kafka_variable
from headwater.compose.parts import connect, kafka, postgres, valkey
from headwater.compose.settings import Ports, StackSettings
from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import read_lock

ROOT = Path(__file__).parents[3]
TEXT = compose_file.FILE.read_text()
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = FILE["services"]
SERVERS = ("kafka", "postgres", "elasticsearch", "valkey")
APP = tuple(each.name for each in PROGRAMS)
OURS = (*APP, "sources")
LISTENERS = {"listener.security.protocol.map", "inter.broker.listener.name"}
"""What differs in a container: programs inside and outside its network reach Kafka, so it has one more listener."""


def test_the_file_is_what_the_code_makes() -> None:
    assert compose_file.text() == TEXT, (
        "run: python -m headwater.compose.containers.compose_file > compose/docker-compose.yml"
    )
    assert yaml.safe_load(TEXT) == compose_file.document()


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
    expected = {kafka_variable(name): value for name, value in properties.items() if name not in LISTENERS}
    assert {name: given.get(name) for name in expected} == expected


def test_programs_inside_and_outside_the_network_reach_kafka() -> None:
    given = SERVICES["kafka"]["environment"]
    pairs = [each.split("://") for each in given["KAFKA_ADVERTISED_LISTENERS"].split(",")]
    advertised = {name: address for name, address in pairs}
    assert advertised["INSIDE"] == INSIDE["HEADWATER_KAFKA"] == f"{SERVICES['kafka']['hostname']}:9092"
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
    names = [each.partition(":")[0] for each in given.get("volumes", ())]
    assert set(names) <= set(FILE["volumes"])


@pytest.mark.parametrize("program", OURS)
def test_a_program_of_headwater_may_write_its_state_and_nothing_else(program: str) -> None:
    given = SERVICES[program]
    assert given["read_only"] is True and given["cap_drop"] == ["ALL"]
    assert given["volumes"] == [f"{program}-state:{STATE}"]
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
