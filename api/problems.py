"""How every error is answered in HTTP: with an RFC 9457 problem document; errors of other packages know no HTTP."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from headwater.api.errors import (
    INTERNAL,
    ApiError,
    BadHeader,
    BadParameter,
    BodyIncomplete,
    Forbidden,
    MalformedLine,
    Meaning,
    Unauthenticated,
)
from headwater.api.limits import LIMITS_HIT
from headwater.api.requests.parameters import with_newlines
from headwater.commands import errors as commands
from headwater.commands.errors import CommandError
from headwater.eventlog import errors as eventlog
from headwater.eventlog.errors import EventLogError
from headwater.projections import errors as projections
from headwater.projections.errors import ProjectionError

MEDIA_TYPE: Final = "application/problem+json"
WITHOUT_LOG: Final = Meaning(503, "log_unavailable", "The log is unavailable", retry_after_s=2)
WITHOUT_STORE: Final = Meaning(503, "store_unavailable", "A store is unavailable", ("store",), 2)
WITHOUT_KEYS: Final = Meaning(503, "keys_unavailable", "The keys of persons are unavailable", retry_after_s=2)
WITHOUT_AUDIT: Final = Meaning(503, "audit_log_unavailable", "The audit log is unavailable", retry_after_s=2)
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
    eventlog.NotRecorded: WITHOUT_AUDIT,
    eventlog.LogUnavailable: WITHOUT_LOG,
    eventlog.ResealUnfinished: WITHOUT_LOG,
    eventlog.KeysUnavailable: WITHOUT_KEYS,
    eventlog.WrongKeyStore: WITHOUT_KEYS,
    eventlog.ValueWithheld: WITHOUT_KEYS,
    eventlog.UnknownKey: WITHOUT_KEYS,
    projections.ProjectionError: INTERNAL,
    projections.ViewDeclarationError: MISCONFIGURED,
    projections.UnknownView: Meaning(404, "unknown_view", "Unknown view", ("view", "known")),
    projections.StoreUnavailable: WITHOUT_STORE,
    projections.LacksRight: WITHOUT_STORE,
    projections.GenerationMissing: Meaning(
        503, "generation_missing", "The view is not built yet", ("view", "generation"), 5
    ),
}
AGAIN_S: Final = 10.0
"""How long the same cause is not logged again: during an outage, every request has it."""
MAX_CAUSES: Final = 100
KNOWN: Final = (ApiError, CommandError, EventLogError, ProjectionError)
log = logging.getLogger(__name__)


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
        case eventlog.NotRecorded():
            why = "the audit log is unavailable: try again; the server log has the reason"
            return f'"{error.verb}" was not done, because {why}'
        case eventlog.WrongKeyStore():  # it has ids of stores, and no address
            return error.reason
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
                {"detail": detail["msg"], "pointer": pointer([*within, *_place(detail, document)])}
                for detail in error.details
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


class Outages:
    """Logs why a server is unavailable, for operators and not in answers; each cause once in a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._clock = clock
        self._logged: dict[str, float] = {}

    def note(self, error: Exception) -> None:
        """Log the message of an error, unless the same one was logged a moment ago."""
        cause, now = str(error), self._clock()
        if now - self._logged.get(cause, -AGAIN_S) < AGAIN_S:
            return
        if len(self._logged) >= MAX_CAUSES:
            self._logged.clear()
        self._logged[cause] = now
        log.warning("%s", cause)


_outages = Outages()


def problem_response(
    request: Request, status: int, code: str, title: str, detail: str, facts: dict[str, Any], **headers: str
) -> Response:
    """A problem document; `headers` by name with underscores for hyphens."""
    document = _document(request, status, code, title, detail, facts)
    return Response(
        orjson.dumps(document, default=str),
        status,
        {name.replace("_", "-"): text for name, text in headers.items()},
        MEDIA_TYPE,
    )


def problem_of(
    error: Exception, request: Request, document: Any = None, within: Sequence[str | int] = ()
) -> dict[str, Any]:
    """The document of any error, for a part of an answer; an unexpected error is logged with its error id.

    document, within: the invalid document and its place in the request body (see `members_of`).
    """
    if not isinstance(error, KNOWN):
        error_id = _log_failure(request, error)
        detail = f"internal error: search the server log for {error_id}"
        return _document(request, 500, INTERNAL.code, INTERNAL.title, detail, {"error_id": error_id})
    meaning, facts = meaning_of(error), members_of(error, document, within)
    if meaning.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        facts["error_id"] = _log_failure(request, error)
    if meaning.is_limit:
        LIMITS_HIT.labels(meaning.code).inc()
    return _document(request, meaning.status, meaning.code, meaning.title, shown(error), facts)


def shown(error: Exception) -> str:
    """What an answer says about a known error; what it does not say about an outage is logged."""
    detail = detail_of(error)
    if detail != str(error):
        _outages.note(error)
    return detail


def _document(
    request: Request, status: int, code: str, title: str, detail: str, facts: dict[str, Any]
) -> dict[str, Any]:
    document: dict[str, Any] = clean(
        {
            **facts,
            "type": f"urn:headwater:problem:{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "instance": with_newlines(request.url.path),
        }
    )
    return document


def clean(value: Any) -> Any:
    """`value` without lone surrogates, which UTF-8 cannot encode; a path or a message may contain them."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list | tuple) else value


def install(app: FastAPI) -> None:
    """Answer every error of every package with its problem document."""
    for kind in KNOWN:
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)


async def answer(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any error as ASGI, outside of the routes."""
    answered = await _known(Request(scope), error)
    await answered(scope, receive, send)


async def _known(request: Request, error: Exception) -> Response:
    body = getattr(request.state, "body", None)
    document, retry_after_s = problem_of(error, request, body), meaning_of(error).retry_after_s
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if isinstance(error, Forbidden | Unauthenticated):
        headers["WWW-Authenticate"] = error.challenge
    if isinstance(error, BodyIncomplete):
        headers["Connection"] = "close"  # what arrives later is no request
    return Response(orjson.dumps(document, default=str), document["status"], headers, MEDIA_TYPE)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    phrase = HTTPStatus(error.status_code).phrase
    path = with_newlines(request.url.path)
    detail = f"{request.method} {path}: {str(error.detail).lower()}; see /docs"
    headers = {name.replace("-", "_"): text for name, text in (error.headers or {}).items()}
    if "GET" in headers.get("Allow", ""):  # every path with GET also has HEAD
        headers["Allow"] += ", HEAD"
    code = phrase.lower().replace(" ", "_")
    return problem_response(request, error.status_code, code, phrase, detail, {}, **headers)


async def _gone(request: Request, error: Exception) -> Response:
    detail = f"the client disconnected: {error}"
    return problem_response(request, 400, "client_gone", "The client disconnected", detail, {})


def _log_failure(request: Request, error: Exception) -> str:
    # of a failed command: that of the handler's log
    error_id: str = getattr(error, "error_id", None) or uuid.uuid4().hex[:12]
    path = quote(with_newlines(request.url.path), errors="replace")  # a newline would begin a line of the log
    facts = {"method": request.method, "path": path, "error_id": error_id}
    log.error("%s %s failed, error id %s", request.method, path, error_id, exc_info=error, extra=facts)
    return error_id
