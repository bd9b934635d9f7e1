"""`POST /commands`: many commands as NDJSON; the answers are NDJSON in order of completion."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from api import requests, schemas
from api.answers import accepted
from api.documents import Accepted, CommandAnswer
from api.errors import MalformedLine
from api.lines import CommandLine
from api.ndjson import MEDIA_TYPE, DuplexResponse, Line, Write, read_lines
from api.problems import documented, problem_of
from api.service import Service
from commands.receipt import raise_refusal
from commands.sending.gateway import new_command_id
from commands.sending.pipeline import run_each

PATH: Final = "/commands"
DESCRIPTION: Final = """\
One command per line. Each line gets one answer line, as soon as the command is decided:

- `accepted`: as `POST /commands/{type}` answers.
- `problem`: a problem document. An invalid line does not stop the others.

Commands of one aggregate are decided in the order of their lines.

Read the answers while you send. If a client does not read its answers, the server stops reading its lines and finally
disconnects it. After a lost connection, send the lines without an answer again, with the same ids.
"""


def bulk_routes(service: Service) -> APIRouter:
    """The route of many commands."""
    router = APIRouter(tags=["commands"])

    async def submit_many(request: Request) -> Response:
        requests.check_no_query(request)
        requests.check_media(request, MEDIA_TYPE)
        bulk = _Bulk(service, request)
        return DuplexResponse(bulk.exchange, service.limits.stall_s)

    router.add_api_route(
        PATH,
        submit_many,
        methods=["POST"],
        operation_id="submit many",
        summary="Submit many commands.",
        description=DESCRIPTION,
        response_class=Response,
        responses={
            200: {
                "description": "One answer per line, in order of completion.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/CommandAnswer"}}},
            },
            **documented(400, 415, 422, 500),
        },
        openapi_extra=schemas.bulk_request(),
    )
    return router


class _Bulk:
    """One request with many commands."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service, self._request = service, request
        self._defaults = {
            "correlation_id": requests.correlation_id(request),
            "causation_id": requests.causation_id(request),
            "traceparent": requests.traceparent(request),
        }

    async def exchange(self, write: Write) -> None:
        """Read, submit, answer."""

        async def deliver(answers: Sequence[bytes]) -> None:
            await self._service.writing.next()  # meanwhile more answers come, for the next write
            await write(b"".join(answers))

        await run_each(self._lines(), self._answer, deliver, self._service.limits.in_flight)

    async def _lines(self) -> AsyncIterator[Line]:
        async for lines in read_lines(self._request, self._service.limits.body_bytes, self._service.reading):
            for line in lines:
                yield line

    async def _answer(self, line: Line) -> bytes:
        command_id: str | None = None
        document: Any = None
        within: Sequence[str] = ()
        try:
            document = line.read(self._service.limits.body_bytes)
            command = _read(line, document)
            command_id, document, within = command.id or new_command_id(), command.body, ("body",)
            async with self._service.in_flight:
                status, body = await self._submit(command, command_id)
            answer: CommandAnswer = {"line": line.number, "id": command_id, "status": status, "accepted": body}
        except Exception as error:  # noqa: BLE001 - one line must not end the others; `problem_of` logs what is a bug
            problem = problem_of(error, self._request, document, within)
            answer = {"line": line.number, "id": command_id, "status": problem["status"], "problem": problem}
        return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)

    async def _submit(self, command: CommandLine, command_id: str) -> tuple[int, Accepted]:
        trace = command.traceparent if requests.is_traceparent(command.traceparent) else self._defaults["traceparent"]
        receipt = await self._service.gateway.submit(
            command.type,
            command.body,
            command_id=command_id,
            expected_version=command.expected_version,
            correlation_id=command.correlation_id or self._defaults["correlation_id"],
            causation_id=command.causation_id or self._defaults["causation_id"],
            traceparent=trace,
        )
        raise_refusal(receipt)
        return 201 if receipt.events else 200, accepted(receipt)


def _read(line: Line, document: dict[str, Any]) -> CommandLine:
    try:
        return CommandLine.model_validate(document)
    except ValidationError as error:
        raise MalformedLine(line.number, error.errors(include_url=False, include_context=False)) from error
