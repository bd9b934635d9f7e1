"""`POST /commands/{type}`: one command, and the answer is its receipt."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.openapi import schemas
from headwater.api.openapi.components import ACCEPTED_HEADERS, Schema, documented
from headwater.api.openapi.documents import accepted, receipt_headers
from headwater.api.requests import headers
from headwater.api.requests.body import parse_json, read_json
from headwater.api.requests.parameters import check_no_query
from headwater.api.routing import router_of
from headwater.api.service import Service
from headwater.commands.receipt import raise_refusal
from headwater.commands.sending.prepared_command import Options, PreparedCommand, prepare

PROBLEMS = (400, 404, 408, 409, 412, 413, 415, 422, 500, 503, 504)


def command_routes(service: Service) -> APIRouter:
    """The route of all commands; the OpenAPI document has a path of each: see `command_paths`."""
    router = router_of("commands")

    async def submit(request: Request, command_type: str) -> Response:
        check_no_query(request)
        kind = service.commands.public_command(command_type)
        options: Options = {
            "command_id": headers.idempotency_key(request),
            "correlation_id": headers.correlation_id(request),
            "causation_id": headers.causation_id(request),
            "expected_version": headers.expected_version(request),
            "traceparent": headers.traceparent(request),
            "actor": caller_of(request).name,
        }

        def prepared(body: bytes) -> PreparedCommand:
            document, claims = parse_json(request, body, service.limits), caller_of(request).claims
            return prepare(kind, document, datetime.now(UTC), text=body, claims=claims, **options)

        async with service.work.bodies.place() as place:
            body = await read_json(request, service.limits, place)
            if is_personal := kind.command.sealed_fields is not None:  # it may make the key of a person
                service.guard.must_be_valid(caller_of(request))
            command = await service.bodies.read(len(body), prepared, body, waits=is_personal)
            service.guard.must_be_valid(caller_of(request))
            del body, request.state.body  # while its receipt is awaited, only the record is needed
            (answer,) = service.gateway.send([command])
            receipt = await answer
        raise_refusal(receipt)
        status = 201 if receipt.events else 200
        return Response(orjson.dumps(accepted(receipt)), status, receipt_headers(receipt), "application/json")

    router.add_api_route(
        "/commands/{command_type:key}",
        submit,
        methods=["POST"],
        dependencies=needs.of_parameter("commands", "command_type"),
        include_in_schema=False,
    )
    return router


def command_paths(service: Service) -> Schema:
    """The path of each command, for the OpenAPI document."""
    answers = {
        201: schemas.answer("Events were appended.", "Accepted", ACCEPTED_HEADERS),
        200: schemas.answer("Accepted without an event: nothing had to change.", "Accepted", ACCEPTED_HEADERS),
        **documented(*PROBLEMS),
    }
    found: Schema = {}
    for name, kind in service.commands.public.items():
        description = (kind.command.__doc__ or "").strip()
        summary, request = (description or name).splitlines()[0], schemas.command_request(name)
        found[f"/commands/{name}"] = {
            "post": schemas.operation(
                "commands", f"submit {name}", summary, description, f"commands:{name}", answers, **request
            )
        }
    return found
