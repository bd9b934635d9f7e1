"""`POST /commands`: many commands as NDJSON; the answers are NDJSON in order of completion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from headwater.api.errors import BodyIncomplete, MalformedLine, Unauthenticated
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.limits import Capacity
from headwater.api.openapi import schemas
from headwater.api.openapi.components import CommandLine, documented
from headwater.api.openapi.documents import CommandAnswer, accepted
from headwater.api.problems import problem_of
from headwater.api.requests import headers
from headwater.api.requests.body import check_media
from headwater.api.requests.ndjson import MEDIA_TYPE, DuplexResponse, Line, Write, largest_bytes, read_lines
from headwater.api.requests.parameters import check_no_query
from headwater.api.routing import router_of
from headwater.api.service import Service
from headwater.commands.declaring.exact_numbers import may_be_rounded
from headwater.commands.declaring.faults import faults_of
from headwater.commands.receipt import Receipt, raise_refusal
from headwater.commands.sending.prepared_command import Options, PreparedCommand, new_command_ids, prepare

PATH: Final = "/commands"
MAX_ANSWERS_BYTES: Final = 1024 * 1024
"""Of the answers that a client has not read; more lines are read when it has."""
DESCRIPTION: Final = """\
One command per line. Each line gets one answer line, as soon as the command is decided:

- `accepted`: as `POST /commands/{type}` answers.
- `problem`: a problem document. An invalid line does not stop the others.

Commands of one aggregate are decided in the order of their lines.

Read the answers while you send. If a client does not read its answers, the server stops reading its lines and finally
disconnects it. After a lost connection, send the lines without an answer again, with the same ids.
"""

logger = logging.getLogger(__name__)


class _Body(msgspec.Struct):
    """The body in a line, as text."""

    body: msgspec.Raw


_READ_BODY: Final = msgspec.json.Decoder(_Body).decode


def bulk_routes(service: Service) -> APIRouter:
    """The route of many commands."""
    router = router_of("commands")

    async def submit_many(request: Request) -> Response:
        check_no_query(request)
        headers.check_of_one_command(request, "use id and expected_version of each line")
        check_media(request, MEDIA_TYPE)
        return DuplexResponse(_Bulk(service, request).exchange)

    router.add_api_route(
        PATH,
        submit_many,
        methods=["POST"],
        dependencies=needs.some("commands"),
        operation_id="submit many",
        summary="Submit many commands.",
        description=DESCRIPTION,
        response_class=Response,
        responses={
            200: {
                "description": "One answer per line, in order of completion.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/CommandAnswer"}}},
            },
            **documented(400, 408, 415, 422, 500, 503),
        },
        openapi_extra=schemas.bulk_request(),
    )
    return router


class _Bulk:
    """One request with many commands: lines are started several at once, and answered as their receipts come."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service, self._request = service, request
        self._caller = caller_of(request)
        self._defaults: Options = {
            "correlation_id": headers.correlation_id(request),
            "causation_id": headers.causation_id(request),
            "traceparent": headers.traceparent(request) if headers.given_traceparent(request.headers) else None,
            "actor": self._caller.name,
        }
        span = headers.span_of(request.scope)
        self._trace_links = () if span is None else (span.traceparent,)
        """Of lines without a trace context, whose request has none either: each may begin a trace of its own."""
        self._capacity = Capacity(service.limits.in_flight)
        self._open = 0
        self._waiting = set[asyncio.Future[Receipt]]()
        self._answers = list[bytes]()
        self._answers_bytes = 0
        self._written = asyncio.Event()
        self._changed = asyncio.Event()

    async def exchange(self, write: Write) -> None:
        """Read, submit, answer; raises Overloaded if the process serves too many such requests."""
        async with self._service.work.many_lines.place():
            await self._exchange(write)

    async def _exchange(self, write: Write) -> None:
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
        any_lines = False
        try:
            async for lines in read_lines(self._request, self._service.limits, self._service.reading):
                any_lines = True
                await self._take(lines)
        except BodyIncomplete as error:
            if not any_lines:
                raise
            # the lines that came are answered, as if the body had ended after them
            logger.info("%s: %s", self._request.url.path, error)

    async def _take(self, lines: Sequence[Line]) -> None:
        async for some in self._capacity.portions(lines):
            while self._answers_bytes > MAX_ANSWERS_BYTES:
                self._written.clear()
                await self._written.wait()
            self._open += len(some)
            expired = self._service.guard.refusal(self._caller)
            prepared, refused = await self._service.bodies.read(
                largest_bytes(some), self._prepare, some, expired, waits=bool(self._service.commands.personal)
            )
            for answer in refused:
                self._finish(answer)
            async for commands in self._service.in_flight.portions(prepared, lambda line: _size_bytes(line[1])):
                self._send(commands)

    def _send(self, commands: Sequence[tuple[int, PreparedCommand]]) -> None:
        if (expired := self._service.guard.refusal(self._caller)) is not None:  # while they waited
            for number, command in commands:
                self._service.in_flight.give_back(1, _size_bytes(command))
                self._finish(self._refusal(number, command.command_id, expired))
            return
        answers = self._service.gateway.send([command for _, command in commands])
        for (number, command), answer in zip(commands, answers, strict=True):
            self._waiting.add(answer)
            answer.add_done_callback(partial(self._answer, number, command))

    async def _write(self, write: Write) -> None:
        if self._answers:
            await self._service.writing.next()  # meanwhile more answers come, for this write
            answers, self._answers, self._answers_bytes = self._answers, [], 0
            await write(b"".join(answers))
            self._written.set()
            self._open -= len(answers)
            self._capacity.give_back(len(answers))

    def _prepare(
        self, lines: Sequence[Line], expired: Unauthenticated | None
    ) -> tuple[list[tuple[int, PreparedCommand]], list[CommandAnswer]]:
        """The commands of lines, with their numbers, and the answers to wrong lines."""
        now = datetime.now(UTC)
        commands, refused = list[tuple[int, PreparedCommand]](), list[CommandAnswer]()
        for line, new_id in zip(lines, new_command_ids(len(lines)), strict=True):
            read = self._command(line, new_id, now, expired)
            if isinstance(read, PreparedCommand):
                commands.append((line.number, read))
            else:
                refused.append(read)
        return commands, refused

    def _command(
        self, line: Line, new_id: str, now: datetime, expired: Unauthenticated | None
    ) -> PreparedCommand | CommandAnswer:
        """The command of a line, or the answer if it is wrong. expired: why its caller is not valid any more."""
        command_id: str | None = None
        document: Any = None
        within: Sequence[str] = ()
        try:
            document = line.read(self._service.limits)
            command = _read(line, document)
            command_id, document, within = command.id or new_id, command.body, ("body",)
            if expired is not None:
                raise expired
            self._caller.must("commands", command.type)
            trace = command.traceparent if headers.is_traceparent(command.traceparent) else None
            return prepare(
                self._service.commands.public_command(command.type),
                command.body,
                now,
                # parsing may have rounded its numbers
                text=bytes(_READ_BODY(content).body) if may_be_rounded(content := line.content or b"") else None,
                is_new=command.id is None,
                claims=self._caller.claims,
                trace_links=self._trace_links,
                command_id=command_id,
                expected_version=command.expected_version,
                correlation_id=command.correlation_id or self._defaults["correlation_id"],
                causation_id=command.causation_id or self._defaults["causation_id"],
                traceparent=trace or self._defaults["traceparent"],
                actor=self._defaults["actor"],
            )
        except Exception as error:  # noqa: BLE001 - one line must not end the others; `problem_of` logs what is a bug
            return self._refusal(line.number, command_id, error, document, within)

    def _answer(self, number: int, command: PreparedCommand, answer: asyncio.Future[Receipt]) -> None:
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
        self._answers_bytes += len(self._answers[-1])
        self._changed.set()


def _size_bytes(command: PreparedCommand) -> int:
    """Of its record."""
    return len(command.entry.value or b"")


def _read(line: Line, document: dict[str, Any]) -> CommandLine:
    try:
        return CommandLine.model_validate(document)
    except ValidationError as error:
        raise MalformedLine(line.number, *faults_of(error)) from None  # its text would have all faults
