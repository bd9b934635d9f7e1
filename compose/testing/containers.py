"""The servers of the compose file in containers, by testcontainers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from headwater.compose.errors import ComposeError
from headwater.compose.parts import elasticsearch, kafka, postgres, valkey
from headwater.compose.settings import COMPOSE_FILE, HOST, Ports, StackSettings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

START_S: Final = 300.0
"""For all servers together, once their images are there."""
LOOK_S: Final = 0.2
SHOWN_LINES: Final = 15


def why_no_engine() -> str | None:
    """Why no container can be started here; None if a container engine of this machine answers."""
    if find_spec("testcontainers") is None:
        return "python module 'testcontainers' is missing; install 'headwater[testing]'"
    import docker  # noqa: PLC0415 - who has no engine need not pay for its client
    import requests  # noqa: PLC0415 - comes with it
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    try:
        client = DockerClient()
        client.client.ping()
        host = client.host()
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        return f"no container engine answers: {' '.join(str(error).split())[:300]}"
    return None if host in (HOST, "localhost") else f"the container engine is on another machine: {host}"


@contextmanager
def in_containers(settings: StackSettings) -> Iterator[None]:
    """Run the servers on the ports of `settings`, on this machine's loopback address only, until the block ends.

    Raises ComposeError, with what a server has logged, if one ends or cannot serve in time.
    """
    probes: Mapping[str, Callable[[], str | None]] = {
        "kafka": lambda: kafka.probe(settings.ports.kafka),
        "postgres": lambda: postgres.probe(settings.endpoints.postgres),
        "elasticsearch": lambda: elasticsearch.probe(settings.ports.elasticsearch),
        "valkey": lambda: valkey.probe(settings.ports.valkey),
    }
    services = read_services({Ports.variable(name): str(port) for name, port in asdict(settings.ports).items()})
    with ExitStack() as running:
        started = {name: running.enter_context(_container(services[name])) for name in probes}
        deadline = time.monotonic() + START_S
        for name, container in started.items():
            _wait(name, container, probes[name], deadline)
        yield


def read_services(variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of the compose file by name, with these variables, and with the file's defaults for others."""
    import yaml  # noqa: PLC0415 - as above

    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), COMPOSE_FILE.read_text())
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


def _container(service: Mapping[str, Any]) -> DockerContainer:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - as above

    container = DockerContainer(service["image"])
    container.with_envs(**service.get("environment", {}))
    container.with_kwargs(**{name: service[name] for name in ("hostname", "mem_limit", "shm_size") if name in service})
    if command := service.get("command"):
        container.with_command(command)
    # with_bind_ports would publish it on all addresses of this machine, and PostgreSQL asks for no password
    _, port, inside = service["ports"][0].split(":")
    container.ports[f"{inside}/tcp"] = (HOST, int(port))  # type: ignore[assignment]
    return container


def _wait(name: str, container: DockerContainer, probe: Callable[[], str | None], deadline: float) -> None:
    while (problem := probe()) is not None:
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status in ("exited", "dead") or time.monotonic() > deadline:
            said = b"".join(container.get_logs()).decode(errors="replace").strip().splitlines()[-SHOWN_LINES:]
            raise ComposeError(
                f"the container of '{name}' is {wrapped.status} and cannot serve: {problem}; its log ends with: "
                + " | ".join(said)
            )
        time.sleep(LOOK_S)
