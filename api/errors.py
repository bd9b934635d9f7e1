"""Everything that the API can refuse, and what every error of every package is called in HTTP.

ApiError
├── BadParameter         a path, query or header parameter does not fit
├── MalformedJson        the body is no JSON document
├── MalformedLine        a line of NDJSON is no object with the members that belong there
├── UnsupportedMedia     the body is of another kind than JSON
├── UnknownAggregate     no registered aggregate has this name
├── StreamMissing        the stream has no events, or none up to the version or time asked for
├── RowMissing           the view has no row with this key
├── ReceiptMissing       no receipt is known for this command id
├── ReceiptsNotRead      earlier receipts are still being read, so that nothing is known of one
├── TooManyFollowers     as many clients follow changes as this process serves
├── KeyOnly              the view lives in a store that answers by key only
└── NotCaughtUp          the view has not applied the position in time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from commands import errors as commands
from eventlog import errors as eventlog
from projections import errors as projections


class ApiError(Exception):
    """Root of the API's errors."""


class BadParameter(ApiError):
    """A path, query or header parameter does not fit; `known` lists what there is."""

    def __init__(self, parameter: str, problem: str, known: Sequence[str] = ()) -> None:
        super().__init__(f'"{parameter}" {problem}' + (f"; there are {', '.join(known)}" if known else ""))
        self.parameter, self.problem, self.known = parameter, problem, tuple(known)


class MalformedJson(ApiError):
    """The body is no JSON document; line and column count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"the body is no JSON document: {reason}, at line {line}, column {column}")
        self.reason, self.line, self.column = reason, line, column


class MalformedLine(ApiError):
    """A line of NDJSON is no object with the members that belong there; `details` as of MalformedCommand."""

    def __init__(self, line: int, details: Sequence[Mapping[str, Any]]) -> None:
        places = ", ".join(".".join(map(str, detail["loc"])) or "the line" for detail in details)
        super().__init__(f"line {line} does not fit: see {places}")
        self.line, self.details = line, tuple(details)


class UnsupportedMedia(ApiError):
    """The body is of another kind than JSON."""

    def __init__(self, actual: str, expected: str = "application/json") -> None:
        super().__init__(f'the body is "{actual}": send "{expected}"')
        self.actual, self.expected = actual, expected


class UnknownAggregate(ApiError):
    """No registered aggregate has this name."""

    def __init__(self, aggregate: str, known: Sequence[str]) -> None:
        super().__init__(f'there is no aggregate "{aggregate}": use one of {", ".join(sorted(known))}')
        self.aggregate, self.known = aggregate, tuple(sorted(known))


class StreamMissing(ApiError):
    """The stream has no events, or none up to the version or time asked for; `version` is its version now."""

    def __init__(self, stream: str, version: int = 0) -> None:
        state = f"is at version {version}" if version else "has no events"
        super().__init__(f'"{stream}" {state}: ask for one that it had, or wait for it with after=')
        self.stream, self.version = stream, version


class RowMissing(ApiError):
    """The view has no row with this key."""

    def __init__(self, view: str, key: str) -> None:
        super().__init__(f'view "{view}" has no row "{key}"')
        self.view, self.key = view, key


class ReceiptMissing(ApiError):
    """No receipt is known for this command id: not sent, not answered yet, or older than receipts are kept."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f'there is no receipt of "{command_id}": it was not sent, or it is not answered yet')
        self.command_id = command_id


class ReceiptsNotRead(ApiError):
    """Earlier receipts are still being read after a start: whether there is one of this command is not known yet."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f'whether there is a receipt of "{command_id}" is not known yet: ask again in a moment')
        self.command_id = command_id


class TooManyFollowers(ApiError):
    """As many clients follow changes as one process serves."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} clients follow changes already: try again later, or ask another process")
        self.limit = limit


class KeyOnly(ApiError):
    """The view lives in a store that answers by key only."""

    def __init__(self, view: str, store: str) -> None:
        super().__init__(f'view "{view}" lives in {store}, which answers by key only: GET /views/{view}/rows?key=')
        self.view, self.store = view, store


class NotCaughtUp(ApiError):
    """The view has not applied the position in time; `lag_events` says how far behind it is."""

    def __init__(self, view: str, after: str, waited_ms: int, lag_events: int | None) -> None:
        behind = "an unknown number of" if lag_events is None else str(lag_events)
        super().__init__(f'view "{view}" has not applied {after} within {waited_ms} ms: it is {behind} events behind')
        self.view, self.after, self.waited_ms, self.lag_events = view, after, waited_ms, lag_events


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an error is in HTTP: status, the last part of the problem's type, its title, and seconds to wait."""

    status: int
    code: str
    title: str
    retry_after_s: int | None = None


INTERNAL: Final = Meaning(500, "internal_error", "Internal error")
MISCONFIGURED: Final = Meaning(500, "misconfigured", "The service is set up wrong")

MEANINGS: Final[Mapping[type[Exception], Meaning]] = {
    ApiError: INTERNAL,
    BadParameter: Meaning(422, "bad_parameter", "A parameter does not fit"),
    MalformedJson: Meaning(400, "malformed_json", "The body is no JSON document"),
    MalformedLine: Meaning(422, "malformed_line", "The line does not fit"),
    UnsupportedMedia: Meaning(415, "unsupported_media", "The body is of another kind than JSON"),
    UnknownAggregate: Meaning(404, "unknown_aggregate", "Unknown aggregate"),
    StreamMissing: Meaning(404, "stream_missing", "No such stream, version or time"),
    RowMissing: Meaning(404, "row_missing", "No such row"),
    ReceiptMissing: Meaning(404, "receipt_missing", "No receipt of this command"),
    ReceiptsNotRead: Meaning(503, "receipts_not_read", "Earlier receipts are still being read", retry_after_s=1),
    TooManyFollowers: Meaning(503, "too_many_followers", "Too many clients follow changes", retry_after_s=10),
    KeyOnly: Meaning(400, "key_only", "The view answers by key only"),
    NotCaughtUp: Meaning(503, "not_caught_up", "The view has not caught up", retry_after_s=1),
    commands.CommandError: INTERNAL,
    commands.DeclarationError: MISCONFIGURED,
    commands.Rejected: Meaning(409, "rejected", "A rule said no"),
    commands.UnknownCommand: Meaning(404, "unknown_command", "Unknown command"),
    commands.MalformedCommand: Meaning(422, "malformed_command", "The body does not fit the command"),
    commands.UnknownObservation: Meaning(404, "unknown_observation", "Unknown observation"),
    commands.MalformedObservation: Meaning(422, "malformed_observation", "The report does not fit the observation"),
    commands.WrongVersion: Meaning(412, "wrong_version", "The stream is at another version"),
    commands.IdempotencyKeyReused: Meaning(422, "idempotency_key_reused", "The key belongs to another command"),
    commands.DecideFailed: Meaning(500, "decide_failed", "The aggregate failed on the command"),
    commands.UnreadableCommand: Meaning(422, "unreadable_command", "The command cannot be read"),
    commands.TooLarge: Meaning(413, "too_large", "The body is too large"),
    commands.Unanswered: Meaning(504, "unanswered", "No answer in time", retry_after_s=1),
    commands.UnreadableEvent: Meaning(500, "unreadable_event", "An event cannot be read"),
    commands.BrokenStream: Meaning(500, "broken_stream", "The stream is broken"),
    eventlog.EventLogError: INTERNAL,
    eventlog.SettingError: MISCONFIGURED,
    eventlog.ModuleBroken: MISCONFIGURED,
    eventlog.TopicMismatch: MISCONFIGURED,
    eventlog.NotAnEnvelope: INTERNAL,
    eventlog.LogUnavailable: Meaning(503, "log_unavailable", "The log is away", retry_after_s=2),
    projections.ProjectionError: INTERNAL,
    projections.ViewDeclarationError: MISCONFIGURED,
    projections.UnknownView: Meaning(404, "unknown_view", "Unknown view"),
    projections.StoreUnavailable: Meaning(503, "store_unavailable", "A store is away", retry_after_s=2),
    projections.GenerationMissing: Meaning(503, "generation_missing", "The view is not built yet", retry_after_s=5),
}


def meaning_of(error: Exception) -> Meaning:
    """What `error` is in HTTP: its own class's meaning, or that of the nearest class above."""
    return next((MEANINGS[kind] for kind in type(error).__mro__ if kind in MEANINGS), INTERNAL)


def facts_of(error: Exception) -> dict[str, Any]:
    """What `error` says beside its message: its public attributes, and each field at fault of a malformed command."""
    facts = {name: value for name, value in vars(error).items() if not name.startswith("_") and _is_fact(name, value)}
    details = getattr(error, "details", None)
    return facts if details is None else facts | {"errors": _places(details)}


def _is_fact(name: str, value: Any) -> bool:
    plain = value is None or isinstance(value, str | int | float | tuple | list)
    return plain and name not in ("message", "cause", "problem", "details")


def _places(details: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"place": _pointer(each.get("loc", ())), "problem": each.get("msg", "")} for each in details]


def _pointer(places: Sequence[str | int]) -> str:
    """A JSON pointer (RFC 6901) to a place in the body."""
    return "".join("/" + str(place).replace("~", "~0").replace("/", "~1") for place in places)
