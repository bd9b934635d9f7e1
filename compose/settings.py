"""Where the local stack keeps its state and which ports it uses, read once from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from compose.errors import SettingError

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of the stack's servers, all on 127.0.0.1."""

    kafka: int = 19092
    kafka_controller: int = 19093
    postgres: int = 15432
    elasticsearch: int = 19200
    elasticsearch_transport: int = 19300
    valkey: int = 16379

    @staticmethod
    def variable(field: str) -> str:
        """The environment variable that changes one of the ports."""
        return f"HEADWATER_{field.upper()}_PORT"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where clients find the four servers."""

    kafka: str
    postgres: str
    elasticsearch: str
    valkey: str

    def environment(self) -> dict[str, str]:
        """The variables that point Headwater's own processes at these servers."""
        return {f"HEADWATER_{field.name.upper()}": getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class StackSettings:
    """One local stack; two with different states and ports live side by side."""

    state: Path
    ports: Ports = Ports()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "StackSettings":
        """Read `HEADWATER_STATE` and `HEADWATER_<SERVER>_PORT`; raises SettingError naming the variable."""
        state = Path(environ.get("HEADWATER_STATE") or ".headwater").expanduser().absolute()
        chosen = {
            field.name: _port(variable, environ[variable])
            for field in fields(Ports)
            if environ.get(variable := Ports.variable(field.name))
        }
        return cls(state, Ports(**chosen))

    @property
    def endpoints(self) -> Endpoints:
        """The addresses that follow from the ports."""
        return Endpoints(
            kafka=f"{HOST}:{self.ports.kafka}",
            postgres=f"postgresql://headwater@{HOST}:{self.ports.postgres}/headwater",
            elasticsearch=f"http://{HOST}:{self.ports.elasticsearch}",
            valkey=f"valkey://{HOST}:{self.ports.valkey}",
        )

    @property
    def logs(self) -> Path:
        """The folder of one log file per process."""
        return self.state / "logs"


def _port(variable: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise SettingError(variable, value, "a port number between 1 and 65535")
    return int(value)
