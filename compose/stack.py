"""The local stack: Kafka, PostgreSQL, Elasticsearch, Valkey and Kafka Connect, started and stopped together."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from headwater.api.settings import ServerSettings
from headwater.compose.errors import NotRunning, PortTaken
from headwater.compose.parts import connect, elasticsearch, installation, kafka, postgres, valkey
from headwater.compose.ports import free_ports
from headwater.compose.settings import HOST, Endpoints, Ports, StackSettings
from headwater.compose.state import StateDirectory, own_folder
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.programs.backoff import DEFAULT_BACKOFF, Backoff
from headwater.projections.spark.setup import local
from headwater.projections.spark.setup.jars import group_jars, read_lock
from headwater.projections.supervision.process import ProcessSpec, ProcessStatus, SupervisionError
from headwater.projections.supervision.supervised import Supervised, Supervisor

log = logging.getLogger(__name__)

API_PORT = ServerSettings.variable("port")
JAR_LOCK = Path(__file__).with_name("jars.lock")
PARTS = ("kafka", "postgres", "elasticsearch", "valkey")
"""What every deployment needs."""
CAPTURING = (*PARTS, "connect")
"""What a deployment with captured databases needs."""
NAMES = {
    "kafka": "Kafka",
    "postgres": "PostgreSQL",
    "elasticsearch": "Elasticsearch",
    "valkey": "Valkey",
    "connect": "Kafka Connect",
}
ON_A_JVM: Final = ("kafka", "elasticsearch", "connect")
DUMP_S: Final = 900.0
"""How long a server may take to write the archive of its classes: some seconds, and longer on a busy machine."""


class Stack:
    """The servers on one state directory, supervised by this process.

    Use it as a context manager, or call `start` and `stop`. Data stays in the state directory.

    parts: those to run; with `connect`, there is also the database `shop`, which a deployment can capture.
    backoff: how servers that die are restarted. api_port: of an API that is started later; it must be free, too.
    """

    def __init__(
        self,
        settings: StackSettings,
        parts: Collection[str] = PARTS,
        backoff: Backoff = DEFAULT_BACKOFF,
        api_port: int | None = None,
    ) -> None:
        self.settings = settings
        self._parts, self._backoff, self._api_port = parts, backoff, api_port
        self._state = StateDirectory(settings.state)
        self._supervisor: Supervisor | None = None
        self._services: Supervisor | None = None
        self._recording = threading.Lock()

    @property
    def endpoints(self) -> Endpoints:
        """The addresses of the servers."""
        return self.settings.endpoints

    def start(self) -> None:
        """Start the servers and return when all are healthy.

        Raises AlreadyRunning, PortTaken, DependencyError, StartFailed, or JarError if a download fails.
        """
        specs = specs_of(self.settings, self._parts)
        self._state.take()
        try:
            self._state.clear_leftovers()
            check_ports(self.settings.ports, self._parts)
            if self._api_port is not None:
                check_port("api", self._api_port, API_PORT)
            self._supervisor = Supervisor(specs, self._backoff, self._record)
            self._supervisor.start()
        except BaseException:
            self._supervisor = None
            self._state.release()
            raise

    def stop(self) -> None:
        """Stop all servers cleanly; does nothing if they do not run."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
            self._state.release()

    def supervise(self, specs: Sequence[ProcessSpec]) -> Supervisor:
        """Further processes, which the state directory records beside the servers; the caller starts and stops them."""
        self._services = Supervisor(specs, on_change=self._record)
        return self._services

    def __getitem__(self, part: str) -> Supervised:
        """A running server; raises NotRunning."""
        if self._supervisor is None:
            raise NotRunning(self.settings.state)
        return self._supervisor[part]

    def status(self) -> list[ProcessStatus]:
        """The state of each server; empty if the stack does not run."""
        return [] if self._supervisor is None else self._supervisor.status()

    def __enter__(self) -> "Stack":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _record(self) -> None:
        with self._recording:
            if self._supervisor is not None:
                services = [] if self._services is None else self._services.status()
                self._state.write(self.settings.ports, [*self._supervisor.status(), *services])


def specs_of(settings: StackSettings, parts: Collection[str]) -> list[ProcessSpec]:
    """How these parts run. Raises DependencyError, or JarError if a download fails."""
    jars = fetch_jars(parts)
    build: Mapping[str, Callable[[], ProcessSpec]] = {
        "kafka": lambda: kafka.spec(settings, jars["kafka"]),
        "postgres": lambda: postgres.spec(settings),
        "elasticsearch": lambda: elasticsearch.spec(settings, jars["elasticsearch"]),
        "valkey": lambda: valkey.spec(settings),
        "connect": lambda: connect.spec(settings, jars["connect"], connector_jars(jars)),
    }
    return [build[part]() for part in parts]


def parts_for(modules: Sequence[str]) -> tuple[str, ...]:
    """The parts that a deployment of `modules` needs: Kafka Connect only if one of them declares a source.

    modules: as `read_modules` returns them. Raises UnknownModule, ModuleBroken or SourceDeclarationError.
    """
    return CAPTURING if SourceRegistry.load(modules).sources else PARTS


def parts_text(parts: Collection[str]) -> str:
    """The parts as a list in a sentence: "Kafka, PostgreSQL, Elasticsearch and Valkey"."""
    *names, last = (NAMES[part] for part in parts)
    return f"{', '.join(names)} and {last}" if names else last


def fetch_jars(parts: Collection[str] = PARTS) -> dict[str, list[Path]]:
    """The jars of each part that has some, downloaded (with a progress bar) if the cache lacks them.

    A part may have more than one group of jars: `connect-mariadb` belongs to `connect`.
    """
    return {name: group_jars(group) for name, group in read_lock(JAR_LOCK).items() if name.partition("-")[0] in parts}


def connector_jars(jars: Mapping[str, list[Path]]) -> dict[str, list[Path]]:
    """The jars of Kafka Connect's connectors: those of the groups `connect-…`, by the rest of the name."""
    prefix = "connect-"
    return {name.removeprefix(prefix): paths for name, paths in jars.items() if name.startswith(prefix)}


def check_ports(ports: Ports, parts: Collection[str] = PARTS) -> None:
    """Raise PortTaken for the first port of these parts on which something listens."""
    for field, port in ports.model_dump().items():
        if field.partition("_")[0] not in parts:
            continue
        check_port(field.replace("_", " "), port, Ports.variable(field))


def check_port(part: str, port: int, variable: str) -> None:
    """Raise PortTaken if the port of a part cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a lingering connection is not a listener
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(part, port, variable) from error


def make_archives() -> list[Path]:
    """Make the missing archives of the servers' classes, in about a quarter of a minute; returns those that are there.

    Each server starts once, and its JVM records what it loads. There are fewer, with a warning, if this installation is
    not writable, or if a server's Java cannot make one.
    """
    jars = fetch_jars(CAPTURING)
    if any(installation.find_archive(name, jars[name]) is None for name in ON_A_JVM):
        log.info("making archives of the servers' classes, which halve their start time")
        try:
            local.clear_archives(installation.ARCHIVES)
        except OSError as error:
            log.warning("cannot make archives of the servers' classes, so they start slower: %s", error)
            return []
        try:
            _record_archives(jars)
        except SupervisionError as error:  # who needs the server will see it again
            log.warning("%s", error)
    archives = {name: installation.find_archive(name, jars[name]) for name in ON_A_JVM}
    if missing := [name for name, archive in archives.items() if archive is None]:
        log.warning("these servers have no archive of their classes, so they start slower: %s", ", ".join(missing))
    return list(filter(None, archives.values()))


def _record_archives(jars: Mapping[str, Sequence[Path]]) -> None:
    recorded = {name: installation.ARCHIVES / f"{name}.{os.getpid()}.part" for name in ON_A_JVM}
    with own_folder() as folder:
        specs = {spec.name: spec for spec in specs_of(StackSettings(folder, free_ports()), (*ON_A_JVM, "postgres"))}
        for name, file in recorded.items():
            environment = {**specs[name].env, **installation.recording(file)}
            specs[name] = replace(specs[name], env=environment, stop_timeout_s=DUMP_S)
        supervisor = Supervisor(list(specs.values()))
        supervisor.start()
        supervisor.stop()
    for name, file in recorded.items():
        if file.exists():
            installation.keep_archive(name, jars[name], file)
