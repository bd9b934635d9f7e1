"""The servers of tests: those of the compose file in containers, if an engine answers, else the local stack."""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from headwater.compose.errors import ComposeError
from headwater.compose.parts import elasticsearch, kafka, postgres, valkey
from headwater.compose.ports import free_ports
from headwater.compose.settings import COMPOSE_FILE, HOST, Ports, StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.eventlog.programs.variables import Variables

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

Start = Callable[[StackSettings], AbstractContextManager[object]]
"""Starts servers on these ports, and stops them at the end of the block."""
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
    services = read_services({Ports.variable(name): str(port) for name, port in settings.ports.model_dump().items()})
    with ExitStack() as running:
        started = {name: running.enter_context(_container(services[name])) for name in probes}
        deadline = time.monotonic() + START_S
        for name, container in started.items():
            _wait(name, container, probes[name], deadline)
        yield


def read_services(variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of the compose file by name, with these variables, and with the file's defaults for others."""
    import yaml  # noqa: PLC0415 - as above

    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda lookup: variables.get(lookup[1], lookup[2]), COMPOSE_FILE.read_text())
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


CONTAINERS: Final = "containers"


class ServersVariables(Variables):
    """The variable that chooses the servers of tests."""

    test_servers: Literal["", "containers", "stack"] = Field("", description="containers or stack")


SERVERS: Final = ServersVariables.variable("test_servers")


def chosen_servers(environ: Mapping[str, str]) -> Start:
    """What starts the servers that HEADWATER_TEST_SERVERS names; by default containers, if an engine answers.

    Raises SettingError, and ComposeError if it names containers and no engine answers.
    """
    chosen = ServersVariables.read(environ).test_servers
    reason = why_no_engine() if chosen != "stack" else ""
    if reason is None:
        return in_containers
    if chosen == CONTAINERS:
        raise ComposeError(f"{reason}; start one, or set {SERVERS} to stack")
    return Stack


@contextmanager
def shared_servers(folder: Path, start: Start = Stack) -> Iterator[StackSettings]:
    """The servers of the run whose processes share `folder`: the first to need them starts them, and stops them.

    Their data are in a folder beside pytest's own: every pytest that starts closes that one to other users, and
    PostgreSQL runs as one of these.
    """
    described = folder / "stack.json"
    with (folder / "stack.users").open("w") as users, (folder / "stack.starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if described.exists():
            servers = json.loads(described.read_text())
            settings = StackSettings(Path(servers["state"]), Ports(**servers["ports"]))
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield settings
            return
        with own_folder() as state, start(settings := StackSettings(state, free_ports())):
            described.write_text(json.dumps({"state": str(state), "ports": settings.ports.model_dump()}))
            fcntl.flock(starting, fcntl.LOCK_UN)
            yield settings
            while True:  # until nobody else uses them, with the lock that lets nobody begin to
                fcntl.flock(starting, fcntl.LOCK_EX)
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    fcntl.flock(starting, fcntl.LOCK_UN)
                    time.sleep(LOOK_S)
            described.unlink()
