"""What the `replay` command refuses.

ReplayError
├── CannotVerify    a view cannot be compared with a rebuild of it
├── CannotDiff      two generations cannot be compared
├── NameTaken       a view of some events cannot have this name
├── NothingToDrop   no view of some events has this name
├── NoSuchLetter    there is no dead letter of this key
├── NoTerminal     something would be deleted, and nobody is there to agree
└── CannotRetry     what a dead letter is about cannot be taken in by the command
"""

from __future__ import annotations


class ReplayError(Exception):
    """Root of the command's own errors; the message says what to do."""


class CannotVerify(ReplayError):
    """A view cannot be compared with a rebuild of it."""

    def __init__(self, view: str, problem: str) -> None:
        super().__init__(f'"{view}" cannot be verified: {problem}')
        self.view, self.problem = view, problem


class CannotDiff(ReplayError):
    """Two generations cannot be compared."""

    def __init__(self, left: str, right: str, problem: str) -> None:
        super().__init__(f'"{left}" and "{right}" cannot be compared: {problem}')
        self.left, self.right, self.problem = left, right, problem


class NameTaken(ReplayError):
    """A view of some events cannot have this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'"{name}" is a declared view: choose another name for the one made from some events')
        self.name = name


class NothingToDrop(ReplayError):
    """No view of some events has this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = f"there are {', '.join(known)}" if known else "there is none"
        super().__init__(f'no view made with --as is called "{name}": {listed}')
        self.name, self.known = name, known


class NoSuchLetter(ReplayError):
    """There is no dead letter of this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f'there is no dead letter "{key}": `replay dead-letters list` shows them')
        self.key = key


class NoTerminal(ReplayError):
    """Something would be deleted, and nobody sits at the terminal to agree."""

    def __init__(self) -> None:
        super().__init__("nothing was dropped: without a terminal to ask at, say --yes, or --dry-run to see what it is")


class CannotRetry(ReplayError):
    """What a dead letter is about cannot be taken in by the command."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f'dead letter "{key}" cannot be retried: {problem}')
        self.key, self.problem = key, problem
