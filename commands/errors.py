"""The errors of the write side.

CommandError
├── DeclarationError     a declaration is wrong; found at start
├── Rejected             a rule of the aggregate rejected the command
├── UnknownCommand       no aggregate handles a command of this type
├── MalformedCommand     the body does not fit the command's type
├── UnknownObservation   no observation of this type is declared
├── MalformedObservation the report does not fit the observation's type
├── WrongVersion         the stream is not at the version that the command expected
├── IdempotencyKeyReused the command id was used for another command of the stream
├── UnfitClaim           a claim of the caller, for a field that the API fills, is missing or no value of it
├── DecideFailed         the aggregate's code failed on the command
├── UnreadableCommand    the handler could not read the command
├── TooLarge             the body does not fit in one record of the log
├── Unanswered           no receipt came in time; the command may still be decided
├── MisplacedCommand     a command is in another partition than its stream's
├── BadDecision          `decide` or `evolve` made what cannot be recorded
├── BadReaction          `react` of a process returned what cannot be recorded
├── EarlierReceiptsUnread earlier receipts are still being read, so the receipt may exist
├── BrokenStream         a stream in the log has a version twice, or out of order
├── UnreadableEvent      an event does not fit its type, or is of a version that is not known here
├── UnreadableSnapshot   a snapshot does not fit the state as it is declared now
├── UnreadableProcess    an instance of a process does not fit its state as it is declared now
└── LocalStateError      what the handler keeps on its own disk cannot be read or written
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.eventlog.declaring import WrongDeclaration
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.times import shortened

MAX_PLACES: Final = 10
"""Of a message's faults, in the text of an error."""


class CommandError(Exception):
    """Root of the write side's errors."""


class DeclarationError(CommandError, WrongDeclaration):
    """An aggregate, command or event is declared wrong; the message names it and says what to change."""


class Rejected(CommandError):
    """A rule of the aggregate rejected the command. Raised by `decide`; `code` is stable, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class UnknownCommand(CommandError):
    """No registered aggregate handles a command of this type."""

    def __init__(self, command_type: str, known: Sequence[str]) -> None:
        super().__init__(f'unknown command "{command_type}": use one of {", ".join(sorted(known))}')
        self.command_type, self.known = command_type, tuple(known)


class MalformedCommand(CommandError):
    """A command's body does not fit its type.

    details: pydantic's, one per wrong field; the first ones, if there are many. error_count: of all.
    """

    def __init__(self, command_type: str, details: Sequence[dict[str, Any]], error_count: int | None = None) -> None:
        self.command_type, self.details = command_type, tuple(details)
        self.error_count = len(details) if error_count is None else error_count
        super().__init__(f'invalid body for "{command_type}": see {places_of(details, self.error_count, "body")}')


class UnknownObservation(CommandError):
    """No observation of this type is declared."""

    def __init__(self, observation_type: str, known: Sequence[str]) -> None:
        super().__init__(f'unknown observation "{observation_type}": use one of {", ".join(sorted(known))}')
        self.observation_type, self.known = observation_type, tuple(known)


class MalformedObservation(CommandError):
    """A report does not fit its type; details, error_count: as in MalformedCommand."""

    def __init__(
        self, observation_type: str, details: Sequence[dict[str, Any]], error_count: int | None = None
    ) -> None:
        self.observation_type, self.details = observation_type, tuple(details)
        self.error_count = len(details) if error_count is None else error_count
        places = places_of(details, self.error_count, "report")
        super().__init__(f'invalid report for "{observation_type}": see {places}')


class WrongVersion(CommandError):
    """The stream is not at the version that the command expected (0: it must not exist)."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f'"{stream}" is at version {actual}, not {expected}: read it again and retry')
        self.stream, self.expected, self.actual = stream, expected, actual


class IdempotencyKeyReused(CommandError):
    """The id (`Idempotency-Key`) was used for a command of the stream with another type, body or expected version."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f'the command id "{command_id}" was used for another command of its stream: use a new one')
        self.command_id = command_id


class UnfitClaim(CommandError):
    """The caller has no claim for a field that the API fills, or one that is no value of the field."""

    def __init__(self, message_type: str, field: str, claim: str, problem: str = "") -> None:
        has = f"which is no value of it ({problem})" if problem else "which has none"
        super().__init__(
            f'the field "{field}" of "{message_type}" is filled with the claim "{claim}" of the caller, {has}: '
            "call with a token or an API key that has such a claim"
        )
        self.message_type, self.field, self.claim = message_type, field, claim


class DecideFailed(CommandError):
    """The aggregate's code failed on the command; nothing was changed.

    The handler's log has the traceback, under `error_id` if that is known.
    """

    def __init__(self, command_id: str, message: str, error_id: str | None = None) -> None:
        super().__init__(f'command "{command_id}" failed and changed nothing: {message}')
        self.command_id, self.error_id = command_id, error_id


class UnreadableCommand(CommandError):
    """The handler could not read the command; it is a dead letter."""

    def __init__(self, command_id: str, message: str) -> None:
        super().__init__(f'command "{command_id}" cannot be read: {message}')
        self.command_id = command_id


class TooLarge(CommandError):
    """The body of a request, or the record made of it (`what`), is larger than is allowed."""

    def __init__(self, size_bytes: int, limit_bytes: int, what: str = "the body") -> None:
        super().__init__(f"{what} has {size_bytes} bytes, but at most {limit_bytes} are allowed: send a smaller one")
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes


class Unanswered(CommandError):
    """The command is in the log, but no receipt came in time: look it up later, or send the command again."""

    def __init__(self, command_id: str, stream: str, timeout_s: float) -> None:
        super().__init__(
            f'no receipt for command "{command_id}" of "{stream}" within {timeout_s:g} s: look it up later, or resend '
            "the command with this id"
        )
        self.command_id, self.stream, self.timeout_s = command_id, stream, timeout_s


class EarlierReceiptsUnread(CommandError):
    """It is not known whether a command has a receipt: earlier receipts are still being read, or cannot be read."""

    def __init__(self, command_id: str) -> None:
        super().__init__(
            f'earlier receipts are still being read, so it is not known yet whether command "{command_id}" has one: '
            "try again in a moment, or send the command again with this id"
        )
        self.command_id = command_id


class BrokenStream(CommandError):
    """A version of a stream is repeated or out of order: something other than the owner wrote to the log."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        """expected: the lowest version allowed."""
        super().__init__(
            f'"{stream}" has event {actual}, expected {expected} or later: find out what else wrote to the log'
        )
        self.stream, self.expected, self.actual = stream, expected, actual


class UnreadableEvent(CommandError, NotAnEnvelope):
    """An event in the log does not fit its type as it is declared here, or was written by a newer version of the code.

    It is a NotAnEnvelope too: readers that skip unreadable records treat both the same way.
    """

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        self.reason = reason


class UnreadableSnapshot(CommandError):
    """A snapshot does not fit the state as it is declared now; the state is folded from the events again."""

    def __init__(self, aggregate: str, reason: str) -> None:
        super().__init__(f'a snapshot of "{aggregate}" is unreadable: {reason}')
        self.aggregate, self.reason = aggregate, reason


class LocalStateError(CommandError):
    """What the handler keeps on its own disk cannot be read or written; no command is acknowledged meanwhile."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f'the local state in "{folder}" cannot be used: {reason}; it is restored from the log when the disk is '
            "writable again: free some space, or set HEADWATER_STATE to another disk"
        )
        self.folder, self.reason = folder, reason


class UnreadableProcess(CommandError):
    """A process instance does not fit the process's state as it is declared now."""

    def __init__(self, process: str, key: str, reason: str) -> None:
        super().__init__(
            f'instance "{key}" of process "{process}" does not fit the state, give new fields a default: {reason}'
        )
        self.process, self.key, self.reason = process, key, reason


class MisplacedCommand(CommandError):
    """A record of `commands` is in another partition, or names another stream, than its body."""


class BadDecision(CommandError):
    """The result of `decide` or `evolve` cannot be recorded: another stream or type, unreadable, or too large.

    code: of the receipt's error, if the client may see the message; None: only the handler's log has it.
    """

    def __init__(self, reason: str, code: str | None = None) -> None:
        super().__init__(reason)
        self.code = code


class BadReaction(CommandError):
    """`react` of a process returned no Reaction, or commands, timers or a state that cannot be recorded."""


def places_of(details: Sequence[Mapping[str, Any]], error_count: int, whole: str) -> str:
    """The first places of faults, for the text of an error; whole: what the message itself is called."""
    named = [".".join(str(part) for part in detail["loc"]) or whole for detail in details[:MAX_PLACES]]
    more = error_count - len(named)
    return ", ".join(shortened(location) for location in named) + (f" and {more} more" if more > 0 else "")
