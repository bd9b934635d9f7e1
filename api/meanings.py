"""How every error of every package is answered in HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from headwater.api.errors import (
    ApiError,
    BadHeader,
    BadHost,
    BadParameter,
    BodyIncomplete,
    Forbidden,
    ForgedRequest,
    IssuerUnavailable,
    KeyOnly,
    MadeEarlier,
    MalformedJson,
    MalformedLine,
    MalformedTarget,
    NeverChanges,
    NoSearch,
    NotCaughtUp,
    NotFollowed,
    Overloaded,
    ReceiptMissing,
    RowMissing,
    SeveralWorkers,
    SourceNotCaughtUp,
    StreamMissing,
    TooComplex,
    TooManyFollowers,
    TooManyRequests,
    Unauthenticated,
    UnknownAggregate,
    UnknownHost,
    UnknownSource,
    UnsupportedMedia,
    ViewPaused,
)
from headwater.commands import errors as commands
from headwater.eventlog import errors as eventlog
from headwater.projections import errors as projections

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Meaning:
    """How an error is answered in HTTP.

    code: the last part of the problem's type. members: members of the problem document in addition to those of
    RFC 9457, by the names of the error's attributes; `errors` lists the invalid places (see `faults_of`). Only listed
    members are sent, so a new attribute does not change an answer. retry_after_s: seconds to wait before a retry.
    """

    status: int
    code: str
    title: str
    members: tuple[str, ...] = ()
    retry_after_s: int | None = None

    @property
    def is_limit(self) -> bool:
        """Whether the request is more than a limit allows."""
        return "limit" in self.members or "limit_bytes" in self.members


INTERNAL: Final = Meaning(500, "internal_error", "Internal error")
WITHOUT_LOG: Final = Meaning(503, "log_unavailable", "The log is unavailable", retry_after_s=2)
WITHOUT_STORE: Final = Meaning(503, "store_unavailable", "A store is unavailable", ("store",), 2)
WITHOUT_KEYS: Final = Meaning(503, "keys_unavailable", "The keys of persons are unavailable", retry_after_s=2)
MISCONFIGURED: Final = Meaning(500, "misconfigured", "The service is misconfigured")

MEANINGS: Final[Mapping[type[Exception], Meaning]] = {
    ApiError: INTERNAL,
    BadHost: Meaning(400, "bad_host", "Invalid host"),
    UnknownHost: Meaning(421, "unknown_host", "Unknown host", ("host",)),
    Unauthenticated: Meaning(401, "unauthenticated", "The caller is not known"),
    Forbidden: Meaning(403, "forbidden", "The caller may not do this", ("scope",)),
    ForgedRequest: Meaning(403, "forged_request", "The form was not accepted"),
    IssuerUnavailable: Meaning(503, "issuer_unavailable", "The issuer of tokens is unavailable", (), 2),
    MalformedTarget: Meaning(400, "malformed_target", "Invalid path or query", ("part",)),
    BadParameter: Meaning(422, "bad_parameter", "Invalid parameter", ("parameter", "known", "errors")),
    BadHeader: Meaning(422, "bad_header", "Invalid header", ("header", "errors")),
    MalformedJson: Meaning(400, "malformed_json", "The body is not valid JSON", ("line", "column")),
    MalformedLine: Meaning(422, "malformed_line", "Invalid line", ("line", "errors", "error_count")),
    TooComplex: Meaning(413, "too_complex", "The body has too many values or levels", ("limit",)),
    TooManyRequests: Meaning(429, "too_many_requests", "Too many requests of this caller", ("limit",), 1),
    Overloaded: Meaning(503, "overloaded", "Too much work of this kind", ("limit",), 1),
    BodyIncomplete: Meaning(408, "body_incomplete", "The body did not arrive in time", ("timeout_s",)),
    UnsupportedMedia: Meaning(415, "unsupported_media", "Unsupported media type", ("actual", "expected")),
    UnknownAggregate: Meaning(404, "unknown_aggregate", "Unknown aggregate", ("aggregate", "known")),
    UnknownSource: Meaning(404, "unknown_source", "Unknown source", ("source", "known")),
    StreamMissing: Meaning(404, "stream_missing", "Stream, version or time not found", ("stream", "version")),
    RowMissing: Meaning(404, "row_missing", "Row not found", ("view", "key")),
    ReceiptMissing: Meaning(404, "receipt_missing", "Receipt not found", ("command_id",)),
    TooManyFollowers: Meaning(503, "too_many_followers", "Too many clients follow changes", ("limit",), 10),
    SeveralWorkers: Meaning(409, "several_workers", "Each worker has metrics of its own"),
    NotFollowed: Meaning(409, "not_followed", "Changes of the view cannot be followed", ("view",)),
    NeverChanges: Meaning(409, "never_changes", "The view never changes", ("view", "source")),
    MadeEarlier: Meaning(
        409, "made_earlier", "The view was made from an earlier version", ("view", "source", "version", "declared")
    ),
    NoSearch: Meaning(400, "no_search", "The view has no search", ("view",)),
    KeyOnly: Meaning(400, "key_only", "The view supports look-ups by key only", ("view", "store")),
    NotCaughtUp: Meaning(
        503, "not_caught_up", "The view has not caught up", ("view", "after", "waited_ms", "lag_events"), 1
    ),
    ViewPaused: Meaning(409, "view_paused", "The view is paused", ("view", "after", "since")),
    SourceNotCaughtUp: Meaning(
        503, "source_not_caught_up", "The source has not caught up", ("source", "after", "reached", "waited_ms"), 1
    ),
    commands.CommandError: INTERNAL,
    commands.DeclarationError: MISCONFIGURED,
    commands.Rejected: Meaning(409, "rejected", "Rejected by a rule", ("code",)),
    commands.UnknownCommand: Meaning(404, "unknown_command", "Unknown command", ("command_type", "known")),
    commands.MalformedCommand: Meaning(
        422, "malformed_command", "Invalid command body", ("command_type", "errors", "error_count")
    ),
    commands.UnknownObservation: Meaning(
        404, "unknown_observation", "Unknown observation", ("observation_type", "known")
    ),
    commands.MalformedObservation: Meaning(
        422, "malformed_observation", "Invalid observation", ("observation_type", "errors", "error_count")
    ),
    commands.WrongVersion: Meaning(412, "wrong_version", "Version conflict", ("stream", "expected", "actual")),
    commands.UnfitClaim: Meaning(403, "unfit_claim", "A claim of the caller is missing or unfit", ("claim", "field")),
    commands.IdempotencyKeyReused: Meaning(
        422, "idempotency_key_reused", "The command id was used for another command of the stream", ("command_id",)
    ),
    commands.DecideFailed: Meaning(500, "decide_failed", "The aggregate's code failed", ("command_id",)),
    commands.UnreadableCommand: Meaning(422, "unreadable_command", "The command cannot be read", ("command_id",)),
    commands.TooLarge: Meaning(413, "too_large", "The body is too large", ("size_bytes", "limit_bytes")),
    commands.Unanswered: Meaning(504, "unanswered", "No receipt in time", ("command_id", "timeout_s"), 1),
    commands.EarlierReceiptsUnread: Meaning(
        503, "earlier_receipts_unread", "Earlier receipts are still being read", ("command_id",), 2
    ),
    commands.UnreadableEvent: Meaning(500, "unreadable_event", "An event cannot be read"),
    commands.BrokenStream: Meaning(500, "broken_stream", "Inconsistent stream", ("stream", "expected", "actual")),
    eventlog.EventLogError: INTERNAL,
    eventlog.SettingError: MISCONFIGURED,
    eventlog.UnknownModule: MISCONFIGURED,
    eventlog.ModuleBroken: MISCONFIGURED,
    eventlog.TopicMismatch: MISCONFIGURED,
    eventlog.NotAnEnvelope: INTERNAL,
    eventlog.NotRecorded: INTERNAL,
    eventlog.LogUnavailable: WITHOUT_LOG,
    eventlog.ResealUnfinished: WITHOUT_LOG,
    eventlog.KeysUnavailable: WITHOUT_KEYS,
    eventlog.ValueWithheld: WITHOUT_KEYS,
    eventlog.UnknownKey: INTERNAL,
    projections.ProjectionError: INTERNAL,
    projections.ViewDeclarationError: MISCONFIGURED,
    projections.UnknownView: Meaning(404, "unknown_view", "Unknown view", ("view", "known")),
    projections.StoreUnavailable: WITHOUT_STORE,
    projections.LacksRight: WITHOUT_STORE,
    projections.GenerationMissing: Meaning(
        503, "generation_missing", "The view is not built yet", ("view", "generation"), 5
    ),
}


def meaning_of(error: Exception) -> Meaning:
    """How `error` is answered in HTTP: the meaning of its class, or of the nearest base class that has one."""
    return next((MEANINGS[kind] for kind in type(error).__mro__ if kind in MEANINGS), INTERNAL)


def detail_of(error: Exception) -> str:
    """What an answer says about `error`: without the cause of an outage, which has addresses and users."""
    match error:
        case projections.StoreUnavailable():
            return f"{error.store} is unavailable: try again; the server log has the reason"
        case eventlog.LogUnavailable():
            return f"the log is unavailable while {error.what}: try again; the server log has the reason"
        case eventlog.KeysUnavailable():
            return "the keys of persons are unavailable: try again; the server log has the reason"
        case _:
            return str(error)


def members_of(error: Exception, document: Any = None, within: Sequence[str | int] = ()) -> dict[str, Any]:
    """The members of the problem document of `error`, in addition to those of RFC 9457.

    document: the invalid document, None if it is not known. within: its place in the request body.
    """
    return {
        name: faults_of(error, document, within) if name == "errors" else getattr(error, name)
        for name in meaning_of(error).members
    }


def faults_of(error: Exception, document: Any = None, within: Sequence[str | int] = ()) -> list[dict[str, str]]:
    """What is wrong, and where: `detail`, and the `parameter`, the `header`, or the `pointer` into the body.

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
    """The place in `document` of a pydantic detail, whose `loc` also names branches of unions and other steps."""
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
