"""Everything that the write side can refuse.

CommandError
├── DeclarationError     an aggregate is declared wrong; found at start
├── Rejected             a rule of the aggregate said no
├── UnknownCommand       no aggregate takes a command of this type
├── MalformedCommand     the body does not fit the command's type
├── UnknownObservation   no observation of this type is declared
├── MalformedObservation the report does not fit the observation's type
├── WrongVersion         the stream is not at the version that the command expected
├── IdempotencyKeyReused the command's id belongs to another command
├── DecideFailed         the aggregate's code failed on the command
├── UnreadableCommand    the handler could not read the command
├── TooLarge             the body does not fit in one record of the log
├── Unanswered           no receipt came in time; the command may still be carried out
├── MisplacedCommand     a command lies where its stream does not belong
├── BadDecision          `decide` or `evolve` made what cannot be recorded
├── BadReaction          `react` of a process returned something that cannot be recorded
├── EarlierReceiptsUnread earlier receipts are still being read, so that nothing is known of one
├── BrokenStream         a stream in the log has a version twice, or out of order
├── UnreadableEvent      an event does not fit its type, or is of a version that is not known here
├── UnreadableSnapshot   a snapshot does not fit the state as it is declared now
├── UnreadableProcess    an instance of a process does not fit its state as it is declared now
└── LocalStateError      what the handler keeps on its own disk cannot be read or written
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eventlog.errors import NotAnEnvelope


class CommandError(Exception):
    """Root of the write side's errors."""


class DeclarationError(CommandError):
    """An aggregate, command or event is declared wrong; the message names it and says what to change."""


class Rejected(CommandError):
    """A rule of the aggregate said no. Raised by `decide`; `code` is stable, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class UnknownCommand(CommandError):
    """No registered aggregate takes a command of this type."""

    def __init__(self, command_type: str, known: Sequence[str]) -> None:
        super().__init__(f'no aggregate takes the command "{command_type}": use one of {", ".join(sorted(known))}')
        self.command_type, self.known = command_type, tuple(known)


class MalformedCommand(CommandError):
    """A command's body does not fit its type; `details` are pydantic's, one for each field at fault."""

    def __init__(self, command_type: str, details: Sequence[dict[str, Any]]) -> None:
        places = ", ".join(".".join(str(part) for part in detail["loc"]) or "body" for detail in details)
        super().__init__(f'the body of "{command_type}" does not fit: see {places}')
        self.command_type, self.details = command_type, tuple(details)


class UnknownObservation(CommandError):
    """No observation of this type is declared."""

    def __init__(self, observation_type: str, known: Sequence[str]) -> None:
        super().__init__(f'there is no observation "{observation_type}": use one of {", ".join(sorted(known))}')
        self.observation_type, self.known = observation_type, tuple(known)


class MalformedObservation(CommandError):
    """A report does not fit its type; `details` are pydantic's, one for each field at fault."""

    def __init__(self, observation_type: str, details: Sequence[dict[str, Any]]) -> None:
        places = ", ".join(".".join(str(part) for part in detail["loc"]) or "report" for detail in details)
        super().__init__(f'the report of "{observation_type}" does not fit: see {places}')
        self.observation_type, self.details = observation_type, tuple(details)


class WrongVersion(CommandError):
    """The stream is not at the version that the command expected (0: it must not exist)."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f'"{stream}" is at version {actual}, not {expected}: read it again and decide anew')
        self.stream, self.expected, self.actual = stream, expected, actual


class IdempotencyKeyReused(CommandError):
    """The command's id (its idempotency key) belongs to an earlier command that asked for something else."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f'the idempotency key "{command_id}" was used for another command: take a new one')
        self.command_id = command_id


class DecideFailed(CommandError):
    """The aggregate's code failed on the command; nothing was changed. The handler's log tells more."""

    def __init__(self, command_id: str, message: str) -> None:
        super().__init__(f'command "{command_id}" failed and changed nothing: {message}')
        self.command_id = command_id


class UnreadableCommand(CommandError):
    """The handler could not read the command; it is among the dead letters."""

    def __init__(self, command_id: str, message: str) -> None:
        super().__init__(f'command "{command_id}" cannot be read: {message}')
        self.command_id = command_id


class TooLarge(CommandError):
    """A command's body is larger than one record of the log may be."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"the body has {size_bytes} bytes, and {limit_bytes} are allowed: send less in one command")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class Unanswered(CommandError):
    """The command is in the log, but no receipt came in time: ask for it later by its id, or send it again."""

    def __init__(self, command_id: str, timeout_s: float) -> None:
        super().__init__(f'no receipt of "{command_id}" within {timeout_s:g} s: ask for it later by this id')
        self.command_id, self.timeout_s = command_id, timeout_s


class EarlierReceiptsUnread(CommandError):
    """Whether there is a receipt of a command is not known: earlier receipts are still being read, or cannot be."""

    def __init__(self, command_id: str) -> None:
        super().__init__(
            f'whether there is a receipt of "{command_id}" is not known, because earlier ones are still to be read: '
            "ask again in a moment, or send the command again with this id"
        )
        self.command_id = command_id


class BrokenStream(CommandError):
    """A version of a stream comes twice or too late: the log was written by something other than its owner."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        """expected: the lowest version that may come."""
        super().__init__(
            f'"{stream}" has event {actual} where {expected} or a later one belongs: find out what wrote to the log'
        )
        self.stream, self.expected, self.actual = stream, expected, actual


class UnreadableEvent(CommandError, NotAnEnvelope):
    """An event in the log does not fit its type as it is declared here, or was written by a newer version of the code.

    A NotAnEnvelope as well: whoever reads the log and can do without the record treats both alike.
    """

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        self.reason = reason


class UnreadableSnapshot(CommandError):
    """A snapshot cannot be read as the aggregate's state is declared now; the events tell it anew."""

    def __init__(self, aggregate: str, reason: str) -> None:
        super().__init__(f'a snapshot of "{aggregate}" is unreadable: {reason}')
        self.aggregate, self.reason = aggregate, reason


class LocalStateError(CommandError):
    """What the handler keeps on its own disk cannot be read or written; nothing is acknowledged meanwhile."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f'the local state in "{folder}" cannot be used: {reason}; it is restored from the log as soon as the disk '
            "can be written: make room there, or set HEADWATER_STATE to another disk"
        )
        self.folder, self.reason = folder, reason


class UnreadableProcess(CommandError):
    """An instance of a process cannot be read as its state is declared now."""

    def __init__(self, process: str, key: str, reason: str) -> None:
        super().__init__(
            f'"{key}" of process "{process}" does not fit its state, give new fields of it a default: {reason}'
        )
        self.process, self.key, self.reason = process, key, reason


class MisplacedCommand(CommandError):
    """A record of `commands` lies in another partition, or names another stream, than its body belongs to."""


class BadDecision(CommandError):
    """What `decide` or `evolve` made cannot be recorded: no events of this stream, not readable again, or too large.

    code: of the receipt's error, where the message is for the client as well; None: only the handler's log has it.
    """

    def __init__(self, reason: str, code: str | None = None) -> None:
        super().__init__(reason)
        self.code = code


class BadReaction(CommandError):
    """`react` of a process returned no Reaction, or commands, timers or a state that cannot be recorded."""
