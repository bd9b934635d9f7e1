"""How every error is answered in HTTP: those of the API say it themselves, those of other packages know no HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from headwater.api.errors import INTERNAL, ApiError, BadHeader, BadParameter, MalformedLine, Meaning
from headwater.commands import errors as commands
from headwater.eventlog import errors as eventlog
from headwater.projections import errors as projections

MEDIA_TYPE: Final = "application/problem+json"
WITHOUT_LOG: Final = Meaning(503, "log_unavailable", "The log is unavailable", retry_after_s=2)
WITHOUT_STORE: Final = Meaning(503, "store_unavailable", "A store is unavailable", ("store",), 2)
WITHOUT_KEYS: Final = Meaning(503, "keys_unavailable", "The keys of persons are unavailable", retry_after_s=2)
MISCONFIGURED: Final = Meaning(500, "misconfigured", "The service is misconfigured")

MEANINGS: Final[Mapping[type[Exception], Meaning]] = {
    ApiError: INTERNAL,
    **{kind: kind.meaning for kind in ApiError.__subclasses__()},
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
    commands.Unanswered: Meaning(504, "unanswered", "No receipt in time", ("command_id", "stream", "timeout_s"), 1),
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
