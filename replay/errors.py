"""Errors of the `replay` command.

ReplayError
├── Impossible      something cannot be done with a view, a stream, a topic or a letter
│   ├── CannotVerify    a view cannot be compared with a rebuild of it
│   ├── CannotPause     a view cannot be paused
│   ├── CannotErase     events could not be erased
│   ├── CannotReseal    a topic cannot be copied with encrypted values
│   ├── CannotFoldRow   a row cannot be folded again
│   └── CannotRetry     a dead letter cannot be retried
│       ├── NothingToRetry  nothing needs the record of a dead letter any more
│       └── Undeclared      it may be for something that other modules declare
├── CannotDiff      two generations cannot be compared
├── NameTaken       a view made with --as has the name of a declared view
├── NothingToDrop   there is no undeclared view with this name
├── NoSuchLetter    there is no dead letter with this key
├── NoTerminal      a deletion must be confirmed, but there is no terminal
├── NothingToErase  the log has nothing of this stream or event
└── AmbiguousTarget a name is a stream, and the id of an event of another one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class ReplayError(Exception):
    """Root of the command's own errors; the message says what to do."""


class Impossible(ReplayError):
    """Something cannot be done. text: what, with the name of a view, a stream, a topic or a letter. problem: why."""

    text: ClassVar[str]

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{self.text.format(name)}: {problem}")
        self.problem = problem


class CannotVerify(Impossible):
    """A view cannot be compared with a rebuild of it."""

    text = '"{}" cannot be verified'


class CannotPause(Impossible):
    """A view cannot be paused."""

    text = '"{}" cannot be paused'


class CannotErase(Impossible):
    """Events could not be erased; the command can be repeated."""

    text = '"{}" cannot be erased'


class CannotReseal(Impossible):
    """A topic cannot be copied with encrypted values, or not yet; the command can be repeated."""

    text = '"{}" cannot be resealed'


class CannotFoldRow(Impossible):
    """A row cannot be folded again from the log."""

    text = 'rows of "{}" cannot be folded alone'


class CannotRetry(Impossible):
    """A dead letter cannot be retried."""

    text = 'dead letter "{}" cannot be retried'


class NothingToRetry(CannotRetry):
    """Nothing needs the record of a dead letter any more, so the letter can be removed."""


class Undeclared(CannotRetry):
    """The record may be for something that the modules in this shell do not declare; names: of what."""

    def __init__(self, key: str, what: str, names: Sequence[str]) -> None:
        super().__init__(
            key,
            f"it may be for {what} that HEADWATER_MODULES does not declare here ({', '.join(names)}): set it to the "
            "modules of the deployment, or give this key instead of --all if these are gone for good",
        )


class CannotDiff(ReplayError):
    """Two generations cannot be compared."""

    def __init__(self, left: str, right: str, problem: str) -> None:
        super().__init__(f'"{left}" and "{right}" cannot be compared: {problem}')


class NameTaken(ReplayError):
    """A view made with --as has the name of a declared view."""

    def __init__(self, name: str) -> None:
        super().__init__(f'"{name}" is a declared view: use another name with --as')


class NothingToDrop(ReplayError):
    """There is no undeclared view with this name."""

    def __init__(self, name: str, undeclared: list[str]) -> None:
        listed = f"use one of {', '.join(undeclared)}" if undeclared else "there are none"
        super().__init__(f'there is no undeclared view "{name}": {listed}')


class NoSuchLetter(ReplayError):
    """There is no dead letter with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f'there is no dead letter "{key}": see `replay dead-letters list`')


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


class AmbiguousTarget(ReplayError):
    """A name is a stream, and the id of an event of another one."""

    def __init__(self, name: str) -> None:
        super().__init__(f'"{name}" is a stream, and an event of "{name.rpartition("/")[0]}": add --stream or --event')
