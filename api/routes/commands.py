"""`POST /commands/{type}`, one typed route per command, and `GET /receipts/{id}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.errors import BadParameter, ReceiptMissing
from api.guard import needs
from api.guard.caller import Caller, caller_of
from api.openapi import schemas
from api.openapi.answers import accepted, receipt_headers
from api.openapi.components import ACCEPTED_HEADERS, TEXT
from api.openapi.problem_documents import documented
from api.requests import headers
from api.requests.body import check_json, read_json
from api.requests.parameters import check_names, check_no_query
from api.routes.under import RoutesUnder
from api.service import Service
from commands.declaring.registry import CommandType
from commands.errors import AmbiguousReceipt
from commands.receipt import ORIGINS, raise_refusal
from commands.sending.outgoing import Options, Outgoing, prepare
from eventlog.times import shortened

Endpoint = Callable[[Request], Awaitable[Response]]

RECEIPT_PARAMETERS = ("stream", "origin")
PROBLEMS = (400, 404, 408, 409, 412, 413, 415, 422, 500, 503, 504)


def command_routes(service: Service) -> APIRouter:
    """The routes of every registered command."""
    router, typed = APIRouter(tags=["commands"]), RoutesUnder("/commands")
    for name, kind in service.commands.commands.items():
        typed.add_api_route(
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

    async def read_receipt(request: Request, command_id: str) -> Response:
        """The receipt of a command by its command id (`Idempotency-Key`), also if the command was refused.

        An id is unique per stream. If commands of several streams have it, name the stream.
        """
        plain = check_names(request.query_params.multi_items(), RECEIPT_PARAMETERS)
        return await receipt_of(caller_of(request), command_id, plain)

    async def find_receipt(request: Request) -> Response:
        """The receipt of a command id that cannot be part of a path, such as `..`."""
        plain = check_names(request.query_params.multi_items(), ("command_id", *RECEIPT_PARAMETERS))
        if "command_id" not in plain:
            raise BadParameter("command_id", "is missing: send the id of a command")
        return await receipt_of(caller_of(request), plain["command_id"], plain)

    async def receipt_of(caller: Caller, command_id: str, plain: Mapping[str, str]) -> Response:
        stream, origin = plain.get("stream"), plain.get("origin")
        if origin is not None and origin not in ORIGINS:
            raise BadParameter("origin", f'is "{shortened(origin)}": send one of {", ".join(ORIGINS)}')
        if stream is None and service.own_streams.hides_others(caller):
            raise BadParameter("stream", "is missing: send the stream of the command, as in the link of its answer")
        if stream is not None and not service.own_streams.exists_for(caller, stream):
            raise ReceiptMissing(command_id)
        try:
            receipt = await service.gateway.receipt(command_id, stream=stream, origin=origin)
        except AmbiguousReceipt as error:
            streams = [each for each in error.streams if _may_send_to(service, caller, each)]
            if len(streams) == len(error.streams):
                raise
            # streams that the caller may not send commands to do not exist for it
            if streams:
                raise AmbiguousReceipt(command_id, [(each, None) for each in streams]) from error
            raise ReceiptMissing(command_id) from error
        if receipt is None or not caller.scopes.allow("commands", receipt.type):
            raise ReceiptMissing(command_id)
        if service.own_streams.hides_others(caller):
            receipt = replace(receipt, shared=False)
        return Response(receipt.to_json(), media_type="application/json", headers=receipt_headers(receipt))

    typed.add_api_route(
        "/commands/{command_type:key}",
        submit_unknown,
        methods=["POST"],
        dependencies=needs.of_parameter("commands", "command_type"),
        include_in_schema=False,
    )
    router.include_router(typed)
    answers: dict[int | str, Any] = {
        200: schemas.answer("The receipt.", "Receipt", ACCEPTED_HEADERS),
        **documented(404, 409, 422, 500, 503),
    }
    parameters = [
        schemas.query("stream", TEXT, "the stream of the command, such as listing/L1"),
        schemas.query(
            "origin",
            {"type": "string", "enum": list(ORIGINS)},
            "who chose the id: a client (or a row of an outbox), a process, or the outbox itself",
        ),
    ]
    router.add_api_route(
        "/receipts/{command_id:key}",
        read_receipt,
        methods=["GET"],
        dependencies=needs.some("commands"),
        operation_id="read_receipt",
        summary="The receipt of a command.",
        response_class=Response,
        responses=answers,
        openapi_extra={"parameters": parameters},
    )
    router.add_api_route(
        "/receipts",
        find_receipt,
        methods=["GET"],
        dependencies=needs.some("commands"),
        operation_id="find_receipt",
        summary="The receipt of a command id that cannot be part of a path.",
        response_class=Response,
        responses=answers,
        openapi_extra={"parameters": [schemas.query("command_id", TEXT, "the command id", required=True), *parameters]},
    )
    return router


def _submitting(service: Service, name: str) -> Endpoint:
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
            command = await service.bodies.read(len(body), _prepared, service, request, name, body, options)
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


def _may_send_to(service: Service, caller: Caller, stream: str) -> bool:
    """Whether the caller may send some command to this stream."""
    aggregate = service.commands.aggregates.get(stream.partition("/")[0])
    return aggregate is not None and any(caller.scopes.allow("commands", name) for name in aggregate.commands)
