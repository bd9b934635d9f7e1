"""`POST /commands/{type}`, one typed route per command, and `GET /receipts/{id}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from fastapi import APIRouter, Request, Response

from api import requests, schemas
from api.answers import accepted, receipt_headers
from api.components import ACCEPTED_HEADERS, TEXT
from api.errors import BadParameter, ReceiptMissing
from api.parameters import check_names
from api.problems import documented
from api.routes.under import RoutesUnder
from api.service import Service
from commands.declaring.registry import CommandType
from commands.receipt import ORIGINS, raise_refusal
from eventlog.times import shortened

Endpoint = Callable[[Request], Awaitable[Response]]

RECEIPT_PARAMETERS = ("stream", "origin")
PROBLEMS = (400, 404, 409, 412, 413, 415, 422, 500, 503, 504)


def command_routes(service: Service) -> APIRouter:
    """The routes of every registered command."""
    router, typed = APIRouter(tags=["commands"]), RoutesUnder("/commands")
    for name, kind in service.commands.commands.items():
        typed.add_api_route(
            f"/commands/{name}",
            _submitting(service, name),
            methods=["POST"],
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
        await requests.read_json(request, service.limits.body_bytes)
        service.commands.command(command_type)  # raises UnknownCommand
        raise AssertionError(command_type)

    async def read_receipt(request: Request, command_id: str) -> Response:
        """The receipt of a command by its command id (`Idempotency-Key`), also if the command was refused.

        An id is unique per stream. If commands of several streams have it, name the stream.
        """
        plain = check_names(request.query_params.multi_items(), RECEIPT_PARAMETERS)
        origin = plain.get("origin")
        if origin is not None and origin not in ORIGINS:
            raise BadParameter("origin", f'is "{shortened(origin)}": send one of {", ".join(ORIGINS)}')
        receipt = await service.gateway.receipt(command_id, stream=plain.get("stream"), origin=origin)
        if receipt is None:
            raise ReceiptMissing(command_id)
        return Response(receipt.to_json(), media_type="application/json", headers=receipt_headers(receipt))

    typed.add_api_route("/commands/{command_type:path}", submit_unknown, methods=["POST"], include_in_schema=False)
    router.include_router(typed)
    router.add_api_route(
        "/receipts/{command_id:path}",
        read_receipt,
        methods=["GET"],
        operation_id="read_receipt",
        summary="The receipt of a command.",
        response_class=Response,
        responses={
            200: schemas.answer("The receipt.", "Receipt", ACCEPTED_HEADERS),
            **documented(404, 409, 422, 500, 503),
        },
        openapi_extra={
            "parameters": [
                schemas.query("stream", TEXT, "the stream of the command, such as listing/L1"),
                schemas.query(
                    "origin",
                    {"type": "string", "enum": list(ORIGINS)},
                    "who chose the id: a client (or a row of an outbox), a process, or the outbox itself",
                ),
            ]
        },
    )
    return router


def _submitting(service: Service, name: str) -> Endpoint:
    async def submit(request: Request) -> Response:
        requests.check_no_query(request)
        command_id = requests.idempotency_key(request)
        correlation_id, causation_id = requests.correlation_id(request), requests.causation_id(request)
        expected = requests.expected_version(request)
        body = await requests.read_json(request, service.limits.body_bytes)
        receipt = await service.gateway.submit(
            name,
            body,
            command_id=command_id,
            expected_version=expected,
            correlation_id=correlation_id,
            causation_id=causation_id,
            traceparent=requests.traceparent(request),
        )
        raise_refusal(receipt)
        status = 201 if receipt.events else 200
        return Response(orjson.dumps(accepted(receipt)), status, receipt_headers(receipt), "application/json")

    return submit


def _summary(kind: CommandType) -> str:
    return (kind.command.__doc__ or kind.command.type).strip().splitlines()[0]
