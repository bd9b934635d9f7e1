"""`python -m headwater.compose.containers.compose_file` prints `compose/docker-compose.yml`, which is not edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from headwater.compose.containers.programs import API_PORT, INSIDE, PASSED_ON, PROGRAMS, STATE, Program, memory_variable
from headwater.compose.containers.servers import Health, ServerImage, locked_version, server_images
from headwater.compose.parts import connect
from headwater.compose.settings import HOST, Ports

FILE: Final = Path(__file__).parents[1] / "docker-compose.yml"
IMAGE_VARIABLE: Final = "HEADWATER_IMAGE"
RESTART: Final = "unless-stopped"
HEADER: Final = """\
# Made by `python -m headwater.compose.containers.compose_file`, of what the local stack has, too: change that,
# not this file.
# docs/containers.md says how to use it.
#   docker compose -f compose/docker-compose.yml up --wait                               the servers
#   docker compose -f compose/docker-compose.yml --profile app up --wait                 and Headwater
#   docker compose -f compose/docker-compose.yml --profile capture up --wait             the servers and Kafka Connect
#   docker compose -f compose/docker-compose.yml --profile app --profile app-capture …   all of it
"""


def text() -> str:
    """The file."""
    return HEADER + "".join(f"{line}\n" for line in _lines(document(), 0))


def document() -> dict[str, Any]:
    """What the file says, as it is read by YAML."""
    servers = server_images(f"{HOST}:{_port('kafka')}")
    return {
        "name": "headwater",
        "services": {
            **{each.name: _server(each) for each in servers},
            "connect": _connect(),
            **{each.name: _program(each) for each in PROGRAMS},
            "sources": _watch(),
        },
        "volumes": dict.fromkeys(
            (*(each.name for each in servers), *(f"{each.name}-state" for each in PROGRAMS), "sources-state")
        ),
    }


def image() -> str:
    """The image of Headwater's programs, unless IMAGE_VARIABLE names one with more modules."""
    return f"headwater:{version('headwater')}"


def _port(server: str) -> str:
    return f"${{{Ports.variable(server)}:-{getattr(Ports(), server)}}}"


def _server(each: ServerImage) -> dict[str, Any]:
    found: dict[str, Any] = {
        "image": each.image,
        # under this name the others reach it, and it reaches itself
        "hostname": each.name,
        "ports": [f"{HOST}:{_port(each.name)}:{each.port}"],
        "environment": dict(each.environment),
        "command": [*each.command],
        "shm_size": each.shared_memory,
        "volumes": [f"{each.name}:{each.data}"],
        "healthcheck": _health(each.health),
        "mem_limit": each.memory,
        "restart": RESTART,
    }
    return {name: value for name, value in found.items() if value}


def _health(health: Health) -> dict[str, Any]:
    return {
        "test": ["CMD", *health.command],
        "interval": f"{health.every_s}s",
        "timeout": f"{health.timeout_s}s",
        "retries": health.retries,
    }


def _program(each: Program) -> dict[str, Any]:
    found = _headwater(each.name, each.command, each.memory, each.stop_s)
    found["environment"] |= {
        **INSIDE,
        **dict.fromkeys(each.passed_on),
        **{name: f"${{{name}:-{value}}}" for name, value in each.settings},
    }
    found["depends_on"] = {name: {"condition": "service_healthy"} for name in each.needs}
    if each.name == "api":
        found["ports"] = [f"{HOST}:${{HEADWATER_API_PORT:-{API_PORT}}}:{API_PORT}"]
    if each.check:
        test = ["CMD", "/opt/headwater/bin/python", "-P", "-m", "headwater.compose.containers.health", each.check]
        found["healthcheck"] = {"test": test, "interval": "5s", "timeout": "5s", "retries": 3, "start_period": "10m"}
    return found


def _watch() -> dict[str, Any]:
    """The watch over captured databases, on the host's network: its addresses are those of other programs there."""
    found = _headwater("sources", ("sources", "watch"), "512m", 30, profile="app-capture")
    found["network_mode"] = "host"
    found["environment"] |= {
        "HEADWATER_KAFKA": f"{HOST}:{_port('kafka')}",
        "HEADWATER_CONNECT": f"http://{HOST}:{_port('connect')}",
    }
    found["depends_on"] = {name: {"condition": "service_healthy"} for name in ("kafka", "connect")}
    return found


def _headwater(name: str, command: Iterable[str], memory: str, stop_s: int, *, profile: str = "app") -> dict[str, Any]:
    return {
        "profiles": [profile],
        "image": f"${{{IMAGE_VARIABLE}:-{image()}}}",
        "command": [*command],
        "environment": dict.fromkeys(PASSED_ON),
        "volumes": [f"{name}-state:{STATE}"],
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": f"{stop_s}s",
        "mem_limit": f"${{{memory_variable(name)}:-{memory}}}",
        "restart": RESTART,
    }


def _connect() -> dict[str, Any]:
    """Kafka Connect, on the host's network: its addresses are those of other programs there, also of databases."""
    taken = {name: name.upper().replace(".", "_") for name in connect.PROPERTIES}
    own = {"group.id", "key.converter", "value.converter"} | {
        f"{topic}.storage.topic" for topic in ("config", "offset", "status")
    }
    return {
        "profiles": ["capture", "app-capture"],
        "image": f"quay.io/debezium/connect:{locked_version('connect-debezium', 'debezium-connector-postgres')}",
        "network_mode": "host",
        "depends_on": {name: {"condition": "service_healthy"} for name in ("kafka", "postgres")},
        "environment": {
            "HEAP_OPTS": " ".join(connect.HEAP),
            "BOOTSTRAP_SERVERS": f"{HOST}:{_port('kafka')}",
            "CONNECT_LISTENERS": f"http://{HOST}:{_port('connect')}",
            "ADVERTISED_HOST_NAME": HOST,
            "ADVERTISED_PORT": _port("connect"),
            # the names that the image itself has for some properties
            **{upper if name in own else f"CONNECT_{upper}": connect.PROPERTIES[name] for name, upper in taken.items()},
        },
        "healthcheck": _health(
            Health(("curl", "--fail", "--silent", f"http://{HOST}:{_port('connect')}/health"), 5, 10, 24)
        ),
        "mem_limit": "1g",
        "restart": RESTART,
    }


def _lines(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    """A mapping in YAML: every text quoted as in JSON, which YAML reads alike; short lists on one line."""
    indent = "  " * depth
    for name, each in value.items():
        if isinstance(each, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(each, depth + 1)
            if depth == 1 or (depth == 0 and each):
                yield ""
        elif isinstance(each, list) and len(json.dumps(each)) > 100:
            yield f"{indent}{name}:"
            yield from (f"{indent}  - {json.dumps(one)}" for one in each)
        else:
            yield f"{indent}{name}:" + ("" if each is None else f" {json.dumps(each)}")


if __name__ == "__main__":
    print(text(), end="")
