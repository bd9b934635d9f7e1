"""Which servers tests run on: containers if an engine answers, else the local stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from headwater.compose.errors import ComposeError
from headwater.compose.stack import Stack
from headwater.compose.testing.containers import in_containers, why_no_engine
from headwater.compose.testing.shared import Start
from headwater.eventlog.programs.variables import Variables

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
