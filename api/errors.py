"""Everything that the API can refuse, and what every error of every package is called in HTTP.

ApiError
├── BadParameter         a path or query parameter does not fit
├── BadHeader            a header does not fit
├── MalformedJson        the body is no JSON document
├── MalformedLine        a line of NDJSON is no object with the members that belong there
├── UnsupportedMedia     the body is of another kind than JSON
├── UnknownAggregate     no registered aggregate has this name
├── StreamMissing        the stream has no events, or none up to the version or time asked for
├── RowMissing           the view has no row with this key
├── ReceiptMissing       no receipt is known for this command id
├── TooManyFollowers     as many clients follow changes as this process serves
├── NeverChanges         the view was made of some events, and its rows stay as they are
├── MadeEarlier          the view was made from an earlier version of the one that is declared
├── KeyOnly              the view lives in a store that answers by key only
└── NotCaughtUp          the view has not applied the position in time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from commands import errors as commands
from eventlog import errors as eventlog
from projections import errors as projections


class ApiError(Exception):
    """Root of the API's errors."""


class BadParameter(ApiError):
    """A path or query parameter does not fit; `known` lists what there is."""

    def __init__(self, parameter: str, problem: str, known: Sequence[str] = ()) -> None:
        super().__init__(f'"{parameter}" {problem}' + (f"; use one of {', '.join(known)}" if known else ""))
        self.parameter, self.problem, self.known = parameter, problem, tuple(known)


class BadHeader(ApiError):
    """A header does not fit."""

    def __init__(self, header: str, problem: str) -> None:
        super().__init__(f'"{header}" {problem}')
        self.header, self.problem = header, problem


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


class TooManyFollowers(ApiError):
    """As many clients follow changes as one process serves."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} clients follow changes already: try again later, or ask another process")
        self.limit = limit


class NeverChanges(ApiError):
    """The view was made of some events with `replay rebuild --as`: its rows stay as they are."""

    def __init__(self, view: str, source: str) -> None:
        super().__init__(
            f'view "{view}" was made from "{source}" and stays as it is: read its rows once, or follow '
            f"/views/{source}/changes; a row with the key is at /views/{view}/rows?key="
        )
        self.view, self.source = view, source


class MadeEarlier(ApiError):
    """The view was made from an earlier version of the one that is declared, so its columns may be others."""

    def __init__(self, view: str, source: str, version: int, declared: int) -> None:
        super().__init__(
            f'view "{view}" was made from version {version} of "{source}", which is at version {declared} now: make it '
            f"anew with `replay rebuild {source} --as {view}` and the same choice of events"
        )
        self.view, self.source, self.version, self.declared = view, source, version, declared


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
    """What an error is in HTTP.

    code: the last part of the problem's type. members: what the problem document has beside the members of RFC 9457,
    by the names of the error's attributes; `errors` are the places at fault (see `faults_of`). Only what is listed is
    sent, so that an attribute more changes no answer. retry_after_s: seconds to wait before trying again.
    """

    status: int
    code: str
    title: str
    members: tuple[str, ...] = ()
    retry_after_s: int | None = None


INTERNAL: Final = Meaning(500, "internal_error", "Internal error")
MISCONFIGURED: Final = Meaning(500, "misconfigured", "The service is set up wrong")

MEANINGS: Final[Mapping[type[Exception], Meaning]] = {
    ApiError: INTERNAL,
    BadParameter: Meaning(422, "bad_parameter", "A parameter does not fit", ("parameter", "known", "errors")),
    BadHeader: Meaning(422, "bad_header", "A header does not fit", ("header", "errors")),
    MalformedJson: Meaning(400, "malformed_json", "The body is no JSON document", ("line", "column")),
    MalformedLine: Meaning(422, "malformed_line", "The line does not fit", ("line", "errors")),
    UnsupportedMedia: Meaning(415, "unsupported_media", "The body is of another kind", ("actual", "expected")),
    UnknownAggregate: Meaning(404, "unknown_aggregate", "Unknown aggregate", ("aggregate", "known")),
    StreamMissing: Meaning(404, "stream_missing", "No such stream, version or time", ("stream", "version")),
    RowMissing: Meaning(404, "row_missing", "No such row", ("view", "key")),
    ReceiptMissing: Meaning(404, "receipt_missing", "No receipt of this command", ("command_id",)),
    TooManyFollowers: Meaning(503, "too_many_followers", "Too many clients follow changes", ("limit",), 10),
    NeverChanges: Meaning(409, "never_changes", "The view never changes", ("view", "source")),
    MadeEarlier: Meaning(
        409, "made_earlier", "The view was made from an earlier version", ("view", "source", "version", "declared")
    ),
    KeyOnly: Meaning(400, "key_only", "The view answers by key only", ("view", "store")),
    NotCaughtUp: Meaning(
        503, "not_caught_up", "The view has not caught up", ("view", "after", "waited_ms", "lag_events"), 1
    ),
    commands.CommandError: INTERNAL,
    commands.DeclarationError: MISCONFIGURED,
    commands.Rejected: Meaning(409, "rejected", "A rule said no", ("code",)),
    commands.UnknownCommand: Meaning(404, "unknown_command", "Unknown command", ("command_type", "known")),
    commands.MalformedCommand: Meaning(
        422, "malformed_command", "The body does not fit the command", ("command_type", "errors")
    ),
    commands.UnknownObservation: Meaning(
        404, "unknown_observation", "Unknown observation", ("observation_type", "known")
    ),
    commands.MalformedObservation: Meaning(
        422, "malformed_observation", "The report does not fit the observation", ("observation_type", "errors")
    ),
    commands.WrongVersion: Meaning(
        412, "wrong_version", "The stream is at another version", ("stream", "expected", "actual")
    ),
    commands.IdempotencyKeyReused: Meaning(
        422, "idempotency_key_reused", "The key belongs to another command", ("command_id",)
    ),
    commands.DecideFailed: Meaning(500, "decide_failed", "The aggregate failed on the command", ("command_id",)),
    commands.UnreadableCommand: Meaning(422, "unreadable_command", "The command cannot be read", ("command_id",)),
    commands.TooLarge: Meaning(413, "too_large", "The body is too large", ("size_bytes", "limit_bytes")),
    commands.Unanswered: Meaning(504, "unanswered", "No answer in time", ("command_id", "timeout_s"), 1),
    commands.EarlierReceiptsUnread: Meaning(
        503, "earlier_receipts_unread", "Earlier receipts are still being read", ("command_id",), 2
    ),
    commands.UnreadableEvent: Meaning(500, "unreadable_event", "An event cannot be read"),
    commands.BrokenStream: Meaning(500, "broken_stream", "The stream is broken", ("stream", "expected", "actual")),
    eventlog.EventLogError: INTERNAL,
    eventlog.SettingError: MISCONFIGURED,
    eventlog.UnknownModule: MISCONFIGURED,
    eventlog.AmbiguousModule: MISCONFIGURED,
    eventlog.ModuleBroken: MISCONFIGURED,
    eventlog.TopicMismatch: MISCONFIGURED,
    eventlog.NotAnEnvelope: INTERNAL,
    eventlog.LogUnavailable: Meaning(503, "log_unavailable", "The log is away", retry_after_s=2),
    projections.ProjectionError: INTERNAL,
    projections.ViewDeclarationError: MISCONFIGURED,
    projections.UnknownView: Meaning(404, "unknown_view", "Unknown view", ("view", "known")),
    projections.StoreUnavailable: Meaning(503, "store_unavailable", "A store is away", ("store",), 2),
    projections.GenerationMissing: Meaning(
        503, "generation_missing", "The view is not built yet", ("view", "generation"), 5
    ),
}


def meaning_of(error: Exception) -> Meaning:
    """What `error` is in HTTP: its own class's meaning, or that of the nearest class above."""
    return next((MEANINGS[kind] for kind in type(error).__mro__ if kind in MEANINGS), INTERNAL)


def members_of(error: Exception, document: Any = None, within: Sequence[str | int] = ()) -> dict[str, Any]:
    """The members that the problem document of `error` has beside those of RFC 9457.

    document: what did not fit, None if it is not known. within: where it lies in the request's content.
    """
    return {
        name: faults_of(error, document, within) if name == "errors" else getattr(error, name)
        for name in meaning_of(error).members
    }


def faults_of(error: Exception, document: Any = None, within: Sequence[str | int] = ()) -> list[dict[str, str]]:
    """What is wrong, and where: `detail`, and beside it the `parameter`, the `header`, or the `pointer` into the body.

    The pointer is a JSON pointer (RFC 6901) as a URI fragment, as in RFC 9457.
    """
    match error:
        case BadParameter():
            return [{"detail": error.problem, "parameter": error.parameter}]
        case BadHeader():
            return [{"detail": error.problem, "header": error.header}]
        case MalformedLine() | commands.MalformedCommand() | commands.MalformedObservation():
            return [
                {"detail": each["msg"], "pointer": pointer([*within, *_place(each, document)])}
                for each in error.details
            ]
        case _:
            raise TypeError(f"{type(error).__name__} names no places")


def pointer(place: Sequence[str | int]) -> str:
    """The JSON pointer to a place in a document, as a URI fragment; `#` is the whole document."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in place)
    return "#" + "".join("/" + quote(part.encode(errors="replace"), safe="~") for part in escaped)


def _place(detail: Mapping[str, Any], document: Any) -> list[str | int]:
    """Where in `document` a detail of pydantic's points to: its `loc` also names branches of unions and other steps."""
    loc: Sequence[str | int] = detail.get("loc", ())
    if document is None:
        return list(loc)
    place: list[str | int] = []
    for number, part in enumerate(loc, 1):
        inside = isinstance(document, Mapping) and part in document
        if inside or (isinstance(document, list) and isinstance(part, int) and part < len(document)):
            place.append(part)
            document = document[part]
        elif number == len(loc) and detail.get("type") == "missing":
            place.append(part)
    return place
