"""`GET` and `DELETE /persons/{id}`: what is known about a person, and the erasure of a person."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from headwater.api.errors import BadParameter, Forbidden
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.guard.scopes import ERASE, OPERATE, PERSONAL
from headwater.api.known_persons import KnownPersons
from headwater.api.openapi import schemas
from headwater.api.openapi.components import TEXT, documented
from headwater.api.openapi.documents import link
from headwater.api.requests.parameters import check_names, check_text, read_boolean, read_integer
from headwater.api.routing import router_of, while_connected
from headwater.api.served_views import ServedViews
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.eventlog.audit.trail import Outcome, Trail, Trails, begin
from headwater.eventlog.erasing.person import MAX_PERSON_CHARACTERS, Counted, PersonErasure, erase_person, planned
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.personal.installed import installed

READ_VERB: Final = "person"
"""In the audit log, as for the command line."""
MAX_EVENTS: Final = 100
"""On a page, which also has the rows that they have changed."""
KNOWN: Final = """\
The events with a value that was sealed with a key of the person, and all events of streams whose id is the person, by
time; of these, those that the caller may read. Beside them, the rows that they have changed and that show such a value,
or whose key is the person: a row may come on several pages. Personal values of other persons are hidden, so that the
answer can be given to the person. The audit log has a record of who asked, without what was found.

Rows of stream views that show such a value, or whose key names the person, come on pages of their own, after those of
events; they are found in tables in PostgreSQL. Views made with `--as` have rows here, too.

Observations with such a value come on the last pages, for callers who may read the events of all streams. Their topic
is searched from its beginning, a limited part for each page: a page may have none, and `searched` says how far it got.
"""
DESCRIPTION: Final = """\
Destroys the key of a person: all encrypted values of this person become unreadable, in every copy. It cannot be undone;
it can be repeated. The audit log has a record with what was found, and what is left until when.
"""


class _Persons:
    """The endpoints."""

    def __init__(self, service: Service, views: ServedViews) -> None:
        self._service, self._known = service, KnownPersons(service, views)
        self._append = Trails(lambda: Trail(os.environ)).append

    async def read(self, request: Request, person: str) -> Response:
        """A page of what is known about a person."""
        plain = check_names(request.query_params.multi_items(), ("limit", "cursor", "after", "wait_ms"))
        _check(person)
        limit = read_integer("limit", plain.get("limit", "50"), 1, MAX_EVENTS)
        caller, after = caller_of(request), After.read(plain, self._service.limits)
        async with self._recorded(caller, person):
            work = self._known.page(caller, person, limit, plain.get("cursor"), after)
            rows = await while_connected(request, work)
        links = {}
        if rows.next is not None:
            links["next"] = f"{link('persons', person)}?{urlencode({'limit': limit, 'cursor': rows.next})}"
        document = {
            "person": person,
            "events": [orjson.Fragment(event) for event in rows.events],
            "rows": rows.rows,
            "observations": [orjson.Fragment(observation) for observation in rows.observations],
            "searched": None
            if rows.searched is None
            else dict(zip(("observations", "of"), rows.searched, strict=True)),
            "left_out": {**rows.left_out, "reasons": rows.reasons},
            "links": links,
        }
        return Response(orjson.dumps(document), media_type="application/json")

    @asynccontextmanager
    async def _recorded(self, caller: Caller, person: str) -> AsyncIterator[None]:
        """Record who asks about whom, and how that ends. Raises NotRecorded, before anything is read."""
        append, environment = self._append, self._service.environment
        begun = await asyncio.to_thread(
            begin, append, READ_VERB, {"person": person}, environment, os.environ, caller.name
        )
        try:
            yield
        except BaseException as error:
            reason = error_text(error) or type(error).__name__
            await asyncio.to_thread(append, begun.ended(_outcome(error), 1, reason))
            raise
        await asyncio.to_thread(append, begun.ended("done", 0, ""))

    async def erase(self, request: Request, person: str) -> Response:
        """Erase a person; with `dry_run`, only list what there is."""
        plain = check_names(request.query_params.multi_items(), ("dry_run",))
        _check(person)
        if not self._service.own_streams.has_person(caller_of(request), person):
            raise Forbidden(OPERATE)  # whether or not there is such a person
        is_dry = "dry_run" in plain and read_boolean("dry_run", plain["dry_run"])
        counted = await self._known.count(person)
        self._service.guard.must_be_valid(caller_of(request))
        erasure = await asyncio.to_thread(self._erased, caller_of(request), person, counted, is_dry)
        return Response(orjson.dumps(erasure.document()), media_type="application/json")

    def _erased(self, caller: Caller, person: str, counted: Counted, is_dry: bool) -> PersonErasure:
        keys, in_clear = installed().store, self._service.in_clear
        if is_dry:
            return planned(keys, person, counted, in_clear)
        environment = self._service.environment
        return erase_person(keys, self._append, person, environment, os.environ, caller.name, counted, in_clear)


def person_routes(service: Service, views: ServedViews) -> APIRouter:
    """The routes of persons; none if no field is personal."""
    router = router_of("persons")
    if not service.personal.any:
        return router
    persons = _Persons(service, views)
    router.add_api_route(
        "/persons/{person:key}",
        persons.read,
        methods=["GET"],
        dependencies=needs.named(PERSONAL, "*"),
        operation_id="read a person",
        summary="What is known about a person.",
        description=KNOWN,
        response_class=Response,
        responses={200: schemas.answer("A page of events, and rows.", "PersonKnown"), **documented(409, 422, 500, 503)},
        openapi_extra={
            "parameters": [
                schemas.query(
                    "limit",
                    {"type": "integer", "minimum": 1, "maximum": MAX_EVENTS},
                    "events on a page; fewer, with a `next` link, if they are large",
                ),
                schemas.query("cursor", TEXT, "where to continue, from a `next` link"),
                *schemas.waiting_parameters(),
            ]
        },
    )
    router.add_api_route(
        "/persons/{person:key}",
        persons.erase,
        methods=["DELETE"],
        dependencies=needs.named(ERASE, "*"),
        operation_id="erase a person",
        summary="Erase a person.",
        description=DESCRIPTION,
        response_class=Response,
        responses={200: schemas.answer("What was found and done.", "PersonErased"), **documented(422, 500, 503)},
        openapi_extra={
            "parameters": [schemas.query("dry_run", {"type": "boolean"}, "only list what would be destroyed")]
        },
    )
    return router


def _outcome(error: BaseException) -> Outcome:
    match error:
        case BadParameter():
            return "refused"
        case ClientDisconnect():
            return "interrupted"
        case _:
            return "failed" if isinstance(error, Exception) else "interrupted"


def _check(person: str) -> None:
    """Raise BadParameter if this is the id of nobody."""
    check_text("person", person)
    if len(person) > MAX_PERSON_CHARACTERS:
        raise BadParameter("person", f"has more than {MAX_PERSON_CHARACTERS} characters")
