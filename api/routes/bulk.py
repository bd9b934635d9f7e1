"""`POST /commands`: many commands as NDJSON; the answers are NDJSON in order of completion."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from api import requests, schemas
from api.answers import accepted
from api.capacity import Capacity
from api.documents import CommandAnswer
from api.errors import MalformedLine
from api.lines import CommandLine
from api.ndjson import MEDIA_TYPE, DuplexResponse, Line, Write, read_lines
from api.problems import documented, problem_of
from api.service import Service
from commands.receipt import Receipt, raise_refusal
from commands.sending.outgoing import Options, Outgoing, new_command_ids, prepare

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
        return DuplexResponse(_Bulk(service, request).exchange)

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
    """One request with many commands: lines are started several at once, and answered as their receipts come."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service, self._request = service, request
        self._defaults: Options = {
            "correlation_id": requests.correlation_id(request),
            "causation_id": requests.causation_id(request),
            "traceparent": requests.traceparent(request),
        }
        self._capacity = Capacity(service.limits.in_flight)
        self._open = 0
        self._waiting = set[asyncio.Future[Receipt]]()
        self._answers = list[bytes]()
        self._changed = asyncio.Event()

    async def exchange(self, write: Write) -> None:
        """Read, submit, answer."""
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            ended = False
            while not ended or self._open:
                await self._changed.wait()
                self._changed.clear()
                if ended := reading.done():
                    reading.result()  # raises its error
                await self._write(write)
        finally:
            reading.cancel()
            for answer in self._waiting:
                answer.cancel()
            await asyncio.gather(reading, *self._waiting, return_exceptions=True)

    async def _read(self) -> None:
        async for lines in read_lines(self._request, self._service.limits.body_bytes, self._service.reading):
            async for some in self._capacity.portions(lines):
                self._open += len(some)
                prepared = self._prepare(some)
                async for commands in self._service.in_flight.portions(prepared, lambda each: _size_bytes(each[1])):
                    self._send(commands)

    def _send(self, commands: Sequence[tuple[int, Outgoing]]) -> None:
        answers = self._service.gateway.send([command for _, command in commands], linger=True)
        for (number, command), answer in zip(commands, answers, strict=True):
            self._waiting.add(answer)
            answer.add_done_callback(partial(self._answer, number, command))

    async def _write(self, write: Write) -> None:
        if self._answers:
            await self._service.writing.next()  # meanwhile more answers come, for this write
            answers, self._answers = self._answers, []
            await write(b"".join(answers))
            self._open -= len(answers)
            self._capacity.give_back(len(answers))

    def _prepare(self, lines: Sequence[Line]) -> list[tuple[int, Outgoing]]:
        """The commands of lines, with their numbers; wrong lines are answered."""
        now, each = datetime.now(UTC), zip(lines, new_command_ids(len(lines)), strict=True)
        return [(line.number, command) for line, new_id in each if (command := self._command(line, new_id, now))]

    def _command(self, line: Line, new_id: str, now: datetime) -> Outgoing | None:
        """The command of a line; None if it is wrong, which is answered."""
        command_id: str | None = None
        document: Any = None
        within: Sequence[str] = ()
        try:
            document = line.read(self._service.limits.body_bytes)
            command = _read(line, document)
            command_id, document, within = command.id or new_id, command.body, ("body",)
            trace = command.traceparent if requests.is_traceparent(command.traceparent) else None
            return prepare(
                self._service.commands.command(command.type),
                command.body,
                now,
                is_new=command.id is None,
                command_id=command_id,
                expected_version=command.expected_version,
                correlation_id=command.correlation_id or self._defaults["correlation_id"],
                causation_id=command.causation_id or self._defaults["causation_id"],
                traceparent=trace or self._defaults["traceparent"],
            )
        except Exception as error:  # noqa: BLE001 - one line must not end the others; `problem_of` logs what is a bug
            self._finish(self._refusal(line.number, command_id, error, document, within))
            return None

    def _answer(self, number: int, command: Outgoing, answer: asyncio.Future[Receipt]) -> None:
        self._service.in_flight.give_back(1, _size_bytes(command))
        self._waiting.discard(answer)
        if answer.cancelled():
            return
        try:
            receipt = answer.result()
            raise_refusal(receipt)
            status = 201 if receipt.events else 200
            self._finish({"line": number, "id": command.command_id, "status": status, "accepted": accepted(receipt)})
        except Exception as error:  # noqa: BLE001 - as above
            self._finish(self._refusal(number, command.command_id, error))

    def _refusal(
        self,
        number: int,
        command_id: str | None,
        error: Exception,
        document: Any = None,
        within: Sequence[str] = (),
    ) -> CommandAnswer:
        problem = problem_of(error, self._request, document, within)
        return {"line": number, "id": command_id, "status": problem["status"], "problem": problem}

    def _finish(self, answer: CommandAnswer) -> None:
        self._answers.append(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
        self._changed.set()


def _size_bytes(command: Outgoing) -> int:
    """Of its record."""
    return len(command.entry.value or b"")


def _read(line: Line, document: dict[str, Any]) -> CommandLine:
    try:
        return CommandLine.model_validate(document)
    except ValidationError as error:
        raise MalformedLine(
            line.number, error.errors(include_url=False, include_context=False, include_input=False)
        ) from error
