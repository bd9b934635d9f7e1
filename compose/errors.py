"""What can go wrong while parts are started and watched.

ComposeError
├── SettingError      an environment variable holds what cannot be used
├── DependencyError   a wheel of the extra `stack` is missing
├── PortTaken         another program listens where a part should
├── AlreadyRunning    another supervisor owns the state directory
└── NotRunning        no supervisor owns the state directory
"""

from pathlib import Path

from projections.supervision.errors import SupervisionError


class ComposeError(SupervisionError):
    """Root of everything this package raises on purpose; messages say what to do next."""


class SettingError(ComposeError):
    """An environment variable holds what cannot be used."""

    def __init__(self, variable: str, value: str, expected: str) -> None:
        self.variable, self.value, self.expected = variable, value, expected
        super().__init__(f"{variable} is '{value}'; set it to {expected}")


class DependencyError(ComposeError):
    """A wheel of the extra `stack` is missing."""

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"python module '{module}' is missing; run 'make setup', or install 'headwater[stack]'")


class PortTaken(ComposeError):
    """Another program listens where a part should."""

    def __init__(self, part: str, port: int, variable: str) -> None:
        self.part, self.port, self.variable = part, port, variable
        super().__init__(
            f"port {port} for '{part}' is taken; stop what listens there, or set {variable} to a free port"
        )


class AlreadyRunning(ComposeError):
    """Another supervisor owns the state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        super().__init__(f"a stack is already up on '{state}'; run 'down' first, or set HEADWATER_STATE")


class NotRunning(ComposeError):
    """No supervisor owns the state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        super().__init__(f"no stack is up on '{state}'; start one with 'python -m compose up'")
