"""The state folder and the ports of the local stack, read once from the environment."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from pydantic import Field

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Port, Variables
from headwater.eventlog.settings import LogSettings

HOST = "127.0.0.1"
COMPOSE_FILE: Final = Path(__file__).with_name("docker-compose.yml")
"""The same servers in containers, and Headwater."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of the stack's servers, all on 127.0.0.1."""

    kafka: int = 19092
    kafka_controller: int = 19093
    postgres: int = 15432
    elasticsearch: int = 19200
    elasticsearch_transport: int = 19300
    valkey: int = 16379
    connect: int = 18083

    @staticmethod
    def variable(field: str) -> str:
        """The environment variable that sets one of the ports."""
        return f"HEADWATER_{field.upper()}_PORT"


DEFAULTS: Final = Ports()
FOR_CONNECT: Final = ("HEADWATER_CONNECT", "HEADWATER_SHOP_DATABASE")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of the servers, and of the database `shop` on the same PostgreSQL."""

    kafka: str
    postgres: str
    elasticsearch: str
    valkey: str
    connect: str
    shop_database: str

    def environment(self, with_connect: bool = True) -> dict[str, str]:
        """The variables that give Headwater's own processes these addresses.

        with_connect: those that only a deployment with captured databases uses, too.
        """
        every = {f"HEADWATER_{name.upper()}": address for name, address in asdict(self).items()}
        return {name: every[name] for name in every if with_connect or name not in FOR_CONNECT}


@dataclass(frozen=True, slots=True)
class StackSettings:
    """One local stack; several stacks with different states and ports can run at once."""

    state: Path
    ports: Ports = Ports()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "StackSettings":
        """Read `HEADWATER_STATE` and `HEADWATER_<SERVER>_PORT`; raises SettingError naming the wrong variables."""
        given = StackVariables.read(environ)
        ports = {field.name: getattr(given, f"{field.name}_port") for field in fields(Ports)}
        try:
            state = given.state.expanduser().absolute()
        except RuntimeError:  # there is no such user
            raise StackVariables.fault("state", str(given.state)) from None
        return cls(state, Ports(**ports))

    @property
    def endpoints(self) -> Endpoints:
        """The addresses with these ports."""
        return Endpoints(
            kafka=f"{HOST}:{self.ports.kafka}",
            postgres=f"postgresql://headwater@{HOST}:{self.ports.postgres}/headwater",
            elasticsearch=f"http://{HOST}:{self.ports.elasticsearch}",
            valkey=f"valkey://{HOST}:{self.ports.valkey}",
            connect=f"http://{HOST}:{self.ports.connect}",
            shop_database=f"postgresql://shop_capture@{HOST}:{self.ports.postgres}/shop",
        )

    @property
    def logs(self) -> Path:
        """The folder with one log file per process."""
        return self.state / "logs"

    def make_logs(self) -> None:
        """Make the folder of logs, and so the state folder; raises SettingError naming the variable if it cannot."""
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            needs = f"a folder that can be written ({error.strerror or error})"
            raise SettingError(StackVariables.variable("state"), str(self.state), needs) from error


class StackVariables(Variables):
    """The variables of StackSettings."""

    state: Path = Field(LogSettings.state, description="a folder that can be written")
    kafka_port: Port = DEFAULTS.kafka
    kafka_controller_port: Port = DEFAULTS.kafka_controller
    postgres_port: Port = DEFAULTS.postgres
    elasticsearch_port: Port = DEFAULTS.elasticsearch
    elasticsearch_transport_port: Port = DEFAULTS.elasticsearch_transport
    valkey_port: Port = DEFAULTS.valkey
    connect_port: Port = DEFAULTS.connect
