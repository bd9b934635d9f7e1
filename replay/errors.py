"""Errors of the `replay` command.

ReplayError
├── CannotVerify    a view cannot be compared with a rebuild of it
├── CannotDiff      two generations cannot be compared
├── CannotPause     a view cannot be paused
├── NameTaken       a view made with --as has the name of a declared view
├── NothingToDrop   there is no undeclared view with this name
├── NoSuchLetter    there is no dead letter with this key
├── NoTerminal      a deletion must be confirmed, but there is no terminal
├── NothingToErase  the log has nothing of this stream or event
├── AmbiguousTarget a name is a stream, and the id of an event of another one
├── CannotErase     events could not be erased
├── CannotReseal    a topic cannot be copied with sealed values
├── CannotFoldRow   a row cannot be folded again
└── CannotRetry     a dead letter cannot be retried
    └── NothingToRetry  nothing needs the record of a dead letter any more
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


class CannotPause(ReplayError):
    """A view cannot be paused."""

    def __init__(self, view: str, problem: str) -> None:
        super().__init__(f'"{view}" cannot be paused: {problem}')
        self.view, self.problem = view, problem


class NameTaken(ReplayError):
    """A view made with --as has the name of a declared view."""

    def __init__(self, name: str) -> None:
        super().__init__(f'"{name}" is a declared view: use another name with --as')
        self.name = name


class NothingToDrop(ReplayError):
    """There is no undeclared view with this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = f"use one of {', '.join(known)}" if known else "there are none"
        super().__init__(f'there is no undeclared view "{name}": {listed}')
        self.name, self.known = name, known


class NoSuchLetter(ReplayError):
    """There is no dead letter with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f'there is no dead letter "{key}": see `replay dead-letters list`')
        self.key = key


class NoTerminal(ReplayError):
    """A deletion must be confirmed, but there is no terminal."""

    def __init__(self, dropped: str = "dropped") -> None:
        super().__init__(
            f"nothing was {dropped}: without a terminal, use --yes, or --dry-run to see what would be {dropped}"
        )


class NothingToErase(ReplayError):
    """The log has nothing of this stream or event."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'the log has no event of "{name}": give a stream such as "listing/L1", or the id of an event such as '
            '"listing/L1/7"'
        )
        self.name = name


class AmbiguousTarget(ReplayError):
    """A name is a stream, and the id of an event of another one."""

    def __init__(self, name: str) -> None:
        super().__init__(f'"{name}" is a stream, and an event of "{name.rpartition("/")[0]}": add --stream or --event')
        self.name = name


class CannotErase(ReplayError):
    """Events could not be erased; the command can be repeated."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f'"{name}" cannot be erased: {problem}')
        self.name, self.problem = name, problem


class CannotReseal(ReplayError):
    """A topic cannot be copied with sealed values, or not yet; the command can be repeated."""

    def __init__(self, topic: str, problem: str) -> None:
        super().__init__(f'"{topic}" cannot be resealed: {problem}')
        self.topic, self.problem = topic, problem


class CannotFoldRow(ReplayError):
    """A row cannot be folded again from the log."""

    def __init__(self, view: str, problem: str) -> None:
        super().__init__(f'rows of "{view}" cannot be folded alone: {problem}')
        self.view, self.problem = view, problem


class CannotRetry(ReplayError):
    """A dead letter cannot be retried."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f'dead letter "{key}" cannot be retried: {problem}')
        self.key, self.problem = key, problem


class NothingToRetry(CannotRetry):
    """Nothing needs the record of a dead letter any more, so the letter can be removed."""
