"""`POST /commands/{type}`, with one typed route per command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.openapi import schemas
from headwater.api.openapi.components import ACCEPTED_HEADERS, documented
from headwater.api.openapi.documents import accepted, receipt_headers
from headwater.api.requests import headers
from headwater.api.requests.body import check_json, read_json
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.commands.declaring.registry import CommandType
from headwater.commands.receipt import raise_refusal
from headwater.commands.sending.outgoing import Options, Outgoing, prepare

Endpoint = Callable[[Request], Awaitable[Response]]

PROBLEMS = (400, 404, 408, 409, 412, 413, 415, 422, 500, 503, 504)


def command_routes(service: Service) -> APIRouter:
    """The routes of every registered command."""
    router = APIRouter(tags=["commands"])
    for name, kind in service.commands.commands.items():
        router.add_api_route(
            f"/commands/{name}",
            _submitting(service, name),
            methods=["POST"],
            dependencies=needs.named("commands", name),
            operation_id=f"submit {name}",
            summary=_summary(kind),
            description=(kind.command.__doc__ or "").strip(),
            status_code=201,
            response_class=Response,
            responses={
                201: schemas.answer("Events were appended.", "Accepted", ACCEPTED_HEADERS),
                200: schemas.answer("Accepted without an event: nothing had to change.", "Accepted", ACCEPTED_HEADERS),
                **documented(*PROBLEMS),
            },
            openapi_extra=schemas.command_request(name),
        )

    async def submit_unknown(request: Request, command_type: str) -> Response:
        check_no_query(request)
        async with service.work.bodies.place():
            body = await read_json(request, service.limits)
            await service.bodies.read(len(body), check_json, request, body, service.limits)
        service.commands.command(command_type)  # raises UnknownCommand
        raise AssertionError(command_type)

    router.add_api_route(
        "/commands/{command_type:key}",
        submit_unknown,
        methods=["POST"],
        dependencies=needs.of_parameter("commands", "command_type"),
        include_in_schema=False,
    )
    return router


def _submitting(service: Service, name: str) -> Endpoint:
    kind = service.commands.commands.get(name)
    is_personal = kind is not None and kind.command.sealed_fields is not None

    async def submit(request: Request) -> Response:
        check_no_query(request)
        command_id = headers.idempotency_key(request)
        correlation_id, causation_id = headers.correlation_id(request), headers.causation_id(request)
        expected = headers.expected_version(request)
        options: Options = {
            "command_id": command_id,
            "expected_version": expected,
            "correlation_id": correlation_id,
            "causation_id": causation_id,
            "traceparent": headers.traceparent(request),
            "actor": caller_of(request).name,
        }
        async with service.work.bodies.place():
            body = await read_json(request, service.limits)
            command = await service.bodies.read(
                len(body), _prepared, service, request, name, body, options, waits=is_personal
            )
            (answer,) = service.gateway.send([command])
            receipt = await answer
        raise_refusal(receipt)
        status = 201 if receipt.events else 200
        return Response(orjson.dumps(accepted(receipt)), status, receipt_headers(receipt), "application/json")

    return submit


def _prepared(service: Service, request: Request, name: str, body: bytes, options: Options) -> Outgoing:
    check_json(request, body, service.limits)
    claims = caller_of(request).claims
    return prepare(service.commands.command(name), body, datetime.now(UTC), claims=claims, **options)


def _summary(kind: CommandType) -> str:
    return (kind.command.__doc__ or kind.command.type).strip().splitlines()[0]
