"""Errors of starting and supervising processes.

SupervisionError
├── StartFailed       a process did not become healthy
└── (compose.errors.ComposeError and its subclasses)
"""

from pathlib import Path


class SupervisionError(RuntimeError):
    """Root of the errors of starting and supervising processes; a process's `prepare` raises a subclass."""


class StartFailed(SupervisionError):
    """A process did not become healthy."""

    def __init__(self, part: str, reason: str, log: Path) -> None:
        self.part, self.reason, self.log = part, reason, log
        super().__init__(f"'{part}' did not become healthy: {reason}; its log is '{log}'")
