"""Headwater's own programs as containers: what the profile `app` of the compose file runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.api.settings import GRACE_S, ApiVariables
from headwater.commands.__main__ import KILL_S
from headwater.compose.containers.servers import KAFKA_INSIDE
from headwater.compose.settings import Ports

STATE: Final = "/var/lib/headwater"
"""The one folder of the images that programs write in."""
STOP_PROJECTIONS_S: Final = 60
"""The parts of the read side may take 15 s, and after them a replay that was running ends."""
PASSED_ON: Final = (
    "HEADWATER_ENVIRONMENT",
    "HEADWATER_MODULES",
    "HEADWATER_PARTITIONS",
    "HEADWATER_PATCH_PARTITIONS",
    "HEADWATER_RECEIPTS_DAYS",
    "HEADWATER_LOG_LEVEL",
    "HEADWATER_LOG_FORMAT",
)
"""Variables of the shell that every program gets; one that is not set there stays as the image has it."""
KEYS: Final = ("HEADWATER_KEYS", "HEADWATER_MASTER_KEY")
"""Of programs that seal and open personal values."""
INSIDE: Final = {
    "HEADWATER_KAFKA": f"kafka:{KAFKA_INSIDE}",
    "HEADWATER_POSTGRES": "postgresql://headwater@postgres:5432/headwater",
    "HEADWATER_ELASTICSEARCH": "http://elasticsearch:9200",
    "HEADWATER_VALKEY": "valkey://valkey:6379",
}
"""The servers as other containers of the network reach them."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program. check: what its health check asks for; empty: it has none, and runs if its process does.

    passed_on: further variables of the shell. settings: of this program, which a variable of the shell replaces.
    needs: the servers that must be healthy first. stop_s: how long it may take to end. memory: MEMORY_VARIABLE of it
    replaces this.
    """

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...]
    memory: str
    stop_s: int
    check: str = ""
    passed_on: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


def memory_variable(program: str) -> str:
    """The variable with the most memory that the container of a program may use."""
    return f"HEADWATER_{program.upper()}_MEMORY"


PROGRAMS: Final = (
    Program(
        name="handler",
        command=("handler",),
        needs=("kafka",),
        memory="1g",
        stop_s=round(KILL_S) + 10,
        passed_on=("HEADWATER_HANDLERS", *KEYS),
    ),
    Program(
        name="projections",
        command=("projections",),
        needs=("kafka", "postgres", "elasticsearch", "valkey"),
        memory="6g",
        stop_s=STOP_PROJECTIONS_S,
        check="projections",
        passed_on=("HEADWATER_LOADERS", "HEADWATER_SPARK_MEMORY", *KEYS),
    ),
    Program(
        name="api",
        command=("api",),
        needs=("kafka", "postgres", "elasticsearch", "valkey"),
        memory="1g",
        stop_s=GRACE_S + 10,
        check="ready",
        passed_on=("HEADWATER_API_WORKERS", "HEADWATER_API_ORIGINS", "HEADWATER_ANSWER_TIMEOUT_S", *KEYS),
        settings=(
            # published on this machine's loopback address only, where `headwater run` is open, too
            ("HEADWATER_API_OPEN", "true"),
            ("HEADWATER_API_ALLOWED_HOSTS", "api"),
        ),
    ),
)
API_PORT: Final = ApiVariables.model_fields["api_port"].default
CONNECT_PORT: Final = Ports().connect
