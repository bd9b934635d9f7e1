"""`GET /receipts/{id}`: how commands ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from headwater.api.errors import BadParameter, ReceiptMissing
from headwater.api.guard import needs
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.openapi import schemas
from headwater.api.openapi.components import ACCEPTED_HEADERS, TEXT, documented
from headwater.api.openapi.documents import receipt_headers
from headwater.api.requests.parameters import check_names
from headwater.api.routing import router_of
from headwater.api.service import Service
from headwater.commands.receipt import ORIGINS
from headwater.eventlog.times import shortened

NAMED = ("stream", "origin")
ANSWERS: dict[int | str, Any] = {
    200: schemas.answer("The receipt.", "Receipt", ACCEPTED_HEADERS),
    **documented(404, 422, 500, 503),
}
PARAMETERS = [
    schemas.query("stream", TEXT, "the stream of the command, such as listing/L1", required=True),
    schemas.query(
        "origin",
        {"type": "string", "enum": list(ORIGINS)},
        "who chose the id: a client (or a row of an outbox), a process, or an outbox; default: the first with it",
    ),
]


def receipt_routes(service: Service) -> APIRouter:
    """The routes that find a receipt."""
    router = router_of("commands")

    async def read_receipt(request: Request, command_id: str) -> Response:
        """The receipt of a command by its command id (`Idempotency-Key`), also if the command was refused."""
        plain = check_names(request.query_params.multi_items(), NAMED)
        return await _receipt(service, caller_of(request), command_id, plain)

    async def find_receipt(request: Request) -> Response:
        """The receipt of a command id that cannot be part of a path, such as `..`."""
        plain = check_names(request.query_params.multi_items(), ("command_id", *NAMED))
        if "command_id" not in plain:
            raise BadParameter("command_id", "is missing: send the id of a command")
        return await _receipt(service, caller_of(request), plain["command_id"], plain)

    router.add_api_route(
        "/receipts/{command_id:key}",
        read_receipt,
        methods=["GET"],
        dependencies=needs.some("commands"),
        operation_id="read_receipt",
        summary="The receipt of a command.",
        response_class=Response,
        responses=ANSWERS,
        openapi_extra={"parameters": PARAMETERS},
    )
    router.add_api_route(
        "/receipts",
        find_receipt,
        methods=["GET"],
        dependencies=needs.some("commands"),
        operation_id="find_receipt",
        summary="The receipt of a command id that cannot be part of a path.",
        response_class=Response,
        responses=ANSWERS,
        openapi_extra={"parameters": [schemas.query("command_id", TEXT, "the command id", required=True), *PARAMETERS]},
    )
    return router


async def _receipt(service: Service, caller: Caller, command_id: str, plain: Mapping[str, str]) -> Response:
    stream, origin = plain.get("stream"), plain.get("origin")
    if origin is not None and origin not in ORIGINS:
        raise BadParameter("origin", f'is "{shortened(origin)}": send one of {", ".join(ORIGINS)}')
    if stream is None:
        raise BadParameter("stream", "is missing: send the stream of the command, as in the link of its answer")
    if not service.own_streams.exists_for(caller, stream):
        raise ReceiptMissing(command_id)
    receipt = await service.gateway.receipt(command_id, stream, origin=origin)
    if receipt is None or not caller.scopes.allow("commands", receipt.type):
        raise ReceiptMissing(command_id)
    return Response(receipt.to_json(), media_type="application/json", headers=receipt_headers(receipt))
