"""The API's own errors, each with how it is answered in HTTP; `problems.py` says it of those of other packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from headwater.commands import errors as commands
from headwater.eventlog.capturing.control_topics import Snapshot

MAX_SHOWN_SCOPE: Final = 200
"""Characters of a scope in an answer and its header; clients choose the name in it."""


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


class ApiError(Exception):
    """Root of the API's errors; a class of it takes the fields of its Meaning as arguments."""

    meaning: ClassVar[Meaning] = INTERNAL

    def __init_subclass__(cls, **meaning: Any) -> None:
        """Declare how an error is answered; without arguments, as its base class."""
        super().__init_subclass__()
        if meaning:
            cls.meaning = Meaning(**meaning)


class BadHost(ApiError, status=400, code="bad_host", title="Invalid host"):
    """The header `Host` does not have exactly one host."""

    def __init__(self, problem: str) -> None:
        super().__init__(f'"Host" {problem}: send the name and the port of this API once')


class UnknownHost(ApiError, status=421, code="unknown_host", title="Unknown host", members=("host",)):
    """The request names a host that the API does not answer to."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f'this API does not answer to the host "{host}": use the name of its address, or add this one to '
            "HEADWATER_API_ALLOWED_HOSTS"
        )
        self.host = host


class Unauthenticated(ApiError, status=401, code="unauthenticated", title="The caller is not known"):
    """The request has no API key or token, or one that is not valid; it names neither.

    challenge: the header `WWW-Authenticate` (RFC 6750).
    """

    def __init__(self, problem: str, *, missing: bool = False) -> None:
        super().__init__(problem)
        self.challenge = 'Bearer realm="headwater"' + ("" if missing else ', error="invalid_token"')


class Forbidden(ApiError, status=403, code="forbidden", title="The caller may not do this", members=("scope",)):
    """No scope of the caller allows what it requested; scope: one that would."""

    def __init__(self, scope: str) -> None:
        self.scope = scope if len(scope) <= MAX_SHOWN_SCOPE else f"{scope[: MAX_SHOWN_SCOPE - 1]}…"
        super().__init__(f'the caller may not do this: it needs the scope "{self.scope}"')
        quoted = "".join(
            character
            for character in self.scope
            if character.isascii() and character.isprintable() and character not in '"\\'
        )
        self.challenge = f'Bearer realm="headwater", error="insufficient_scope", scope="{quoted}"'


class ForgedRequest(ApiError, status=403, code="forged_request", title="The form was not accepted"):
    """Another website may have made the browser send this form of the console; problem: why."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the form was not accepted: {problem}")


class IssuerUnavailable(
    ApiError, status=503, code="issuer_unavailable", title="The issuer of tokens is unavailable", retry_after_s=2
):
    """The keys of the issuer of tokens were not fetched for a day, or never since the API started."""

    def __init__(self) -> None:
        super().__init__("the issuer of tokens does not answer, and the API has no keys of it: try again later")


class MalformedTarget(ApiError, status=400, code="malformed_target", title="Invalid path or query", members=("part",)):
    """The path or the query of the request, which `part` names, is not percent-encoded UTF-8."""

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(f"the {part} {problem}")
        self.part = part


class BadParameter(
    ApiError, status=422, code="bad_parameter", title="Invalid parameter", members=("parameter", "known", "errors")
):
    """A path or query parameter is invalid; `known` lists the allowed values or names."""

    def __init__(self, parameter: str, problem: str, known: Sequence[str] = ()) -> None:
        super().__init__(f'"{parameter}" {problem}' + (f"; use one of {', '.join(known)}" if known else ""))
        self.parameter, self.problem, self.known = parameter, problem, tuple(known)


class BadHeader(ApiError, status=422, code="bad_header", title="Invalid header", members=("header", "errors")):
    """A header is invalid."""

    def __init__(self, header: str, problem: str) -> None:
        super().__init__(f'"{header}" {problem}')
        self.header, self.problem = header, problem


class MalformedJson(
    ApiError, status=400, code="malformed_json", title="The body is not valid JSON", members=("line", "column")
):
    """The body is not valid JSON; line and column count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"the body is not valid JSON: {reason}, at line {line}, column {column}")
        self.line, self.column = line, column


class MalformedLine(
    ApiError, status=422, code="malformed_line", title="Invalid line", members=("line", "errors", "error_count")
):
    """A line of NDJSON is not an object with the expected members; details, error_count: as in MalformedCommand."""

    def __init__(self, line: int, details: Sequence[Mapping[str, Any]], error_count: int | None = None) -> None:
        self.line, self.details = line, tuple(details)
        self.error_count = len(details) if error_count is None else error_count
        places = commands.places_of(details, self.error_count, "the line")
        super().__init__(f"line {line} is invalid: see {places}")


class TooComplex(
    ApiError, status=413, code="too_complex", title="The body has too many values or levels", members=("limit",)
):
    """The body has more values, or more levels, than are allowed; what: which of them."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"the body has more than {limit} {what}: send several smaller ones")
        self.limit = limit


class TooManyRequests(
    ApiError,
    status=429,
    code="too_many_requests",
    title="Too many requests of this caller",
    members=("limit",),
    retry_after_s=1,
):
    """The caller sends more than one caller may."""

    def __init__(self, limit_text: str, limit: int) -> None:
        super().__init__(f"more requests of this caller than are allowed {limit_text}: send it again later")
        self.limit = limit


class Overloaded(
    ApiError, status=503, code="overloaded", title="Too much work of this kind", members=("limit",), retry_after_s=1
):
    """As much work of one kind is running and waiting as is allowed; what: names it."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are running or waiting already: try again later, or use another process")
        self.limit = limit


class BodyIncomplete(
    ApiError, status=408, code="body_incomplete", title="The body did not arrive in time", members=("timeout_s",)
):
    """The client did not send its whole body in time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the rest of the body did not arrive within {timeout_s:g} s: send it again")
        self.timeout_s = timeout_s


class UnsupportedMedia(
    ApiError, status=415, code="unsupported_media", title="Unsupported media type", members=("actual", "expected")
):
    """The body has an unsupported media type."""

    def __init__(self, actual: str, expected: str = "application/json") -> None:
        super().__init__(f'the media type of the body is "{actual}": send "{expected}"')
        self.actual, self.expected = actual, expected


class UnknownAggregate(
    ApiError, status=404, code="unknown_aggregate", title="Unknown aggregate", members=("aggregate", "known")
):
    """No aggregate with this name is declared."""

    def __init__(self, aggregate: str, known: Sequence[str]) -> None:
        super().__init__(f'unknown aggregate "{aggregate}": use one of {", ".join(sorted(known))}')
        self.aggregate, self.known = aggregate, tuple(sorted(known))


class UnknownSource(ApiError, status=404, code="unknown_source", title="Unknown source", members=("source", "known")):
    """No captured database with this name is declared."""

    def __init__(self, source: str, known: Sequence[str]) -> None:
        has = f"use one of {', '.join(sorted(known))}" if known else "this deployment captures no database"
        super().__init__(f'unknown source "{source}": {has}')
        self.source, self.known = source, tuple(sorted(known))


class StreamMissing(
    ApiError,
    status=404,
    code="stream_missing",
    title="Stream, version or time not found",
    members=("stream", "version"),
):
    """The stream has no events, or none up to the requested version or time; `version` is its version now."""

    def __init__(self, stream: str, version: int = 0) -> None:
        state = f"is at version {version}" if version else "has no events"
        super().__init__(
            f'"{stream}" {state} in the view "streams": request an existing version or time; to read your own write, '
            "send the position of its answer as after="
        )
        self.stream, self.version = stream, version


class RowMissing(ApiError, status=404, code="row_missing", title="Row not found", members=("view", "key")):
    """The view has no row with this key."""

    def __init__(self, view: str, key: str) -> None:
        super().__init__(f'view "{view}" has no row "{key}"')
        self.view, self.key = view, key


class ReceiptMissing(ApiError, status=404, code="receipt_missing", title="Receipt not found", members=("command_id",)):
    """There is no receipt for this command id: not sent, not decided yet, or past the receipts' retention."""

    def __init__(self, command_id: str) -> None:
        super().__init__(
            f'no receipt for command "{command_id}": it was not sent, is not decided yet, or its receipt has expired'
        )
        self.command_id = command_id


class TooManyFollowers(
    ApiError,
    status=503,
    code="too_many_followers",
    title="Too many clients follow changes",
    members=("limit",),
    retry_after_s=10,
):
    """The process already serves its maximum of clients that follow changes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} clients already follow changes: try again later, or use another process")
        self.limit = limit


class SeveralWorkers(ApiError, status=409, code="several_workers", title="Each worker has metrics of its own"):
    """Several processes serve this address, so that each request reaches another one; its metrics are its own."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"{number} processes serve this address, and each has metrics of its own: set HEADWATER_METRICS_PORT, and "
            "read them at this port and the following ones"
        )


class NotFollowed(
    ApiError, status=409, code="not_followed", title="Changes of the view cannot be followed", members=("view",)
):
    """The view counts rows: only its stores know which of its rows a change touches."""

    def __init__(self, view: str, key: str) -> None:
        super().__init__(
            f'view "{view}" counts rows by "{key}", and which groups a change touches is not sent: '
            f"read its rows again, or follow a view of the rows themselves, with current()"
        )
        self.view = view


class NeverChanges(
    ApiError, status=409, code="never_changes", title="The view never changes", members=("view", "source")
):
    """The view was made with `replay rebuild --as`, so its rows never change."""

    def __init__(self, view: str, source: str) -> None:
        super().__init__(
            f'view "{view}" was made from "{source}" and never changes: read its rows once, or follow '
            f'/views/{source}/changes; for a row with the key "changes", use /views/{view}/rows?key=changes'
        )
        self.view, self.source = view, source


class MadeEarlier(
    ApiError,
    status=409,
    code="made_earlier",
    title="The view was made from an earlier version",
    members=("view", "source", "version", "declared"),
):
    """The view was made from an earlier version of a declared view, so its columns may differ."""

    def __init__(self, view: str, source: str, version: int, declared: int) -> None:
        super().__init__(
            f'view "{view}" was made from version {version} of "{source}", which is at version {declared} now: make it '
            f"again with `replay rebuild {source} --as {view}` and the same selection of events"
        )
        self.view, self.source, self.version, self.declared = view, source, version, declared


class NoSearch(ApiError, status=400, code="no_search", title="The view has no search", members=("view",)):
    """The view is not in the store that searches."""

    def __init__(self, view: str) -> None:
        super().__init__(
            f'view "{view}" has no search, because it is not in Elasticsearch: add Elasticsearch(text=(…)) to its '
            f"stores, or filter its rows with /views/{view}; the row with this key is at /views/{view}/rows?key=search"
        )
        self.view = view


class KeyOnly(
    ApiError, status=400, code="key_only", title="The view supports look-ups by key only", members=("view", "store")
):
    """The view's store supports look-ups by key only, and the view's rankings, by their declarations."""

    def __init__(self, view: str, store: str, rankings: Sequence[str] = ()) -> None:
        also = f", and queries that fit a ranking exactly: {', '.join(rankings)}" if rankings else ""
        super().__init__(
            f'view "{view}" is stored in {store}, which supports look-ups by key only{also}: '
            f"use GET /views/{view}/rows?key="
        )
        self.view, self.store = view, store


class NotCaughtUp(
    ApiError,
    status=503,
    code="not_caught_up",
    title="The view has not caught up",
    members=("view", "after", "waited_ms", "lag_events"),
    retry_after_s=1,
):
    """The view has not applied the position in time; `lag_events` says how far behind it is."""

    def __init__(
        self, view: str, after: str, waited_ms: int, lag_events: int | None, *, has_begun: bool = True
    ) -> None:
        """has_begun: whether the query of a stream view has applied anything yet."""
        behind = "an unknown number of" if lag_events is None else str(lag_events)
        state = f"it is {behind} events behind"
        if not has_begun:
            state += "; its query has not begun: Spark starts it with the first record, which takes up to a minute"
        super().__init__(f'view "{view}" has not applied {after} within {waited_ms} ms: {state}')
        self.view, self.after, self.waited_ms, self.lag_events = view, after, waited_ms, lag_events


class ViewPaused(
    ApiError, status=409, code="view_paused", title="The view is paused", members=("view", "after", "since")
):
    """The view has not applied the position, and does not before an operator resumes it. since: in RFC 3339, in UTC."""

    def __init__(self, view: str, after: str, since: datetime) -> None:
        self.view, self.after, self.since = view, after, since.astimezone(UTC).isoformat()
        super().__init__(
            f'view "{view}" has been paused since {self.since}, before it applied {after}: read it without after=, or '
            "again after an operator has resumed it"
        )


class SourceNotCaughtUp(
    ApiError,
    status=503,
    code="source_not_caught_up",
    title="The source has not caught up",
    members=("source", "after", "reached", "waited_ms"),
    retry_after_s=1,
):
    """The captured database has not been captured up to the position in time; `reached` is how far it has, if known.

    snapshot: that is running now.
    """

    def __init__(self, source: str, after: str, reached: str | None, waited_ms: int, snapshot: Snapshot | None) -> None:
        state = f"is captured up to {reached}" if reached else "is not captured yet"
        why = f"see `headwater sources status {source}`"
        if snapshot is not None:
            why = f"its {snapshot.kind} snapshot is reading {snapshot.table or 'its tables'}"
        super().__init__(f'source "{source}" {state}, not up to {after} within {waited_ms} ms: {why}')
        self.source, self.after, self.reached, self.waited_ms = source, after, reached, waited_ms
