"""What can go wrong while processes are started and watched.

SupervisionError
├── StartFailed       a process did not become healthy
└── (compose.errors.ComposeError and what is below it)
"""

from pathlib import Path


class SupervisionError(RuntimeError):
    """Root of what starting and watching processes raises; a process's `prepare` raises one below it."""


class StartFailed(SupervisionError):
    """A process did not become healthy."""

    def __init__(self, part: str, reason: str, log: Path) -> None:
        self.part, self.reason, self.log = part, reason, log
        super().__init__(f"'{part}' did not become healthy: {reason}; its log is '{log}'")
