"""Errors of starting and supervising the local stack.

ComposeError
├── DomainsError      DOMAINS has an invalid value
├── NoEngine          no container engine with compose files answers
├── DependencyError   a Python package of the extra `stack` is missing
├── PortTaken         another program uses the port of a part
├── AlreadyRunning    another supervisor owns the state directory
└── NotRunning        no supervisor owns the state directory
"""

from collections.abc import Mapping
from pathlib import Path

from headwater.projections.supervision.process import SupervisionError


class ComposeError(SupervisionError):
    """Root of this package's errors; the message says what to do."""


class DomainsError(ComposeError):
    """DOMAINS has an invalid value."""

    def __init__(self, value: str, expected: str) -> None:
        self.value, self.expected = value, expected
        super().__init__(f"DOMAINS is '{value}'; set it to {expected}")


class NoEngine(ComposeError):
    """No container engine with compose files answers. tried: why, by the command that was tried."""

    def __init__(self, tried: Mapping[str, str]) -> None:
        self.tried = dict(tried)
        reasons = "; ".join(f"'{command}': {reason}" for command, reason in tried.items())
        super().__init__(
            f"no container engine answers ({reasons}): start Docker, or install docker with its compose plugin or "
            "podman with podman-compose 1.1 or later (older ones know no profiles); or run without --containers"
        )


class DependencyError(ComposeError):
    """A Python package of the extra `stack` is missing."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"python module '{module}' is missing; run 'make setup', or install 'headwater[stack]'")


class PortTaken(ComposeError):
    """Another program uses the port of a part."""

    def __init__(self, part: str, port: int, variable: str) -> None:
        self.part, self.port, self.variable = part, port, variable
        super().__init__(
            f"port {port} for '{part}' is in use; stop the program that uses it, or set {variable} to a free port"
        )


class AlreadyRunning(ComposeError):
    """Another supervisor owns the state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        super().__init__(f"a stack is already running in '{state}'; run 'down' first, or set HEADWATER_STATE")


class NotRunning(ComposeError):
    """No supervisor owns the state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        super().__init__(f"no stack is running in '{state}'; start one with 'headwater up'")
