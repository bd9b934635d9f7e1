"""The state folder and the ports of the local stack, read once from the environment."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pydantic import Field

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Port, Variables
from headwater.eventlog.settings import LogSettings

HOST = "127.0.0.1"
COMPOSE_FILE: Final = Path(__file__).with_name("docker-compose.yml")
"""The same servers in containers, and Headwater."""


class Ports(Variables):
    """The TCP ports of the stack's servers, all on 127.0.0.1."""

    kafka: Port = 19092
    kafka_controller: Port = 19093
    postgres: Port = 15432
    elasticsearch: Port = 19200
    elasticsearch_transport: Port = 19300
    valkey: Port = 16379
    connect: Port = 18083

    @classmethod
    def variable(cls, field: str) -> str:
        """The environment variable that sets one of the ports."""
        return f"HEADWATER_{field.upper()}_PORT"


class StackVariables(Variables):
    """The variable of StackSettings beside its ports."""

    state: Path = Field(LogSettings.state, description="a folder that can be written")


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
    ports: Ports = field(default_factory=Ports)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "StackSettings":
        """Read `HEADWATER_STATE` and `HEADWATER_<SERVER>_PORT`; raises SettingError naming the wrong variables."""
        given = StackVariables.read(environ).state
        try:
            state = given.expanduser().absolute()
        except RuntimeError:  # there is no such user
            raise StackVariables.fault("state", str(given)) from None
        return cls(state, Ports.read(environ))

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
