"""`DELETE /persons/{id}`: erases a person, by destroying the key of their personal values."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import orjson
from fastapi import APIRouter, Request, Response

from api.errors import BadParameter
from api.guard import needs
from api.guard.caller import caller_of
from api.guard.scopes import ERASE
from api.openapi import schemas
from api.openapi.problem_documents import documented
from api.requests.parameters import check_names, check_text, read_boolean
from api.service import Service
from eventlog.audit.trail import Trail
from eventlog.erasing.person import MAX_PERSON_CHARACTERS, PersonErasure, erase_person, planned
from eventlog.personal.installed import installed

DESCRIPTION: Final = """\
Destroys the key of a person: all sealed values of this person become unreadable, in every copy. It cannot be undone; it
can be repeated. The audit log has a record with what was found, and what is left until when.
"""


def person_routes(service: Service) -> APIRouter:
    """The routes of persons; none if no field is personal."""
    router = APIRouter(tags=["persons"])
    if not service.commands.personal:
        return router

    async def erase(request: Request, person: str) -> Response:
        """Erase a person; with `dry_run`, only list the keys that would be destroyed."""
        plain = check_names(request.query_params.multi_items(), ("dry_run",))
        check_text("person", person)
        if len(person) > MAX_PERSON_CHARACTERS:
            raise BadParameter("person", f"has more than {MAX_PERSON_CHARACTERS} characters")
        is_dry = "dry_run" in plain and read_boolean("dry_run", plain["dry_run"])
        actor = caller_of(request).name

        def done() -> PersonErasure:
            keys = installed().store
            if is_dry:
                return planned(keys, person)
            return erase_person(keys, Trail(os.environ).append, person, service.environment, os.environ, actor)

        found = await asyncio.to_thread(done)
        return Response(orjson.dumps(found.document()), media_type="application/json")

    router.add_api_route(
        "/persons/{person:key}",
        erase,
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
