"""The state folder and the ports of the local stack, read once from the environment."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
    connect: int = 18083

    @staticmethod
    def variable(field: str) -> str:
        """The environment variable that sets one of the ports."""
        return f"HEADWATER_{field.upper()}_PORT"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of the servers, and of the database `shop` on the same PostgreSQL."""

    kafka: str
    postgres: str
    elasticsearch: str
    valkey: str
    connect: str
    shop_database: str

    def environment(self) -> dict[str, str]:
        """The variables that give Headwater's own processes these addresses."""
        return {f"HEADWATER_{name.upper()}": address for name, address in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class StackSettings:
    """One local stack; several stacks with different states and ports can run at once."""

    state: Path
    ports: Ports = Ports()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "StackSettings":
        """Read `HEADWATER_STATE` and `HEADWATER_<SERVER>_PORT`; raises SettingError naming the variable."""
        state = Path(environ.get("HEADWATER_STATE") or ".headwater").expanduser().absolute()
        defaults = asdict(Ports())
        ports = {name: read_port(environ, Ports.variable(name), default) for name, default in defaults.items()}
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


def read_port(environ: Mapping[str, str], variable: str, default: int) -> int:
    """The port that a variable holds, or the default; raises SettingError naming the variable."""
    value = environ.get(variable)
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
        raise SettingError(variable, value, "a port number between 1 and 65535")
    return int(value)
