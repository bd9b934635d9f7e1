"""`POST /observations/{type}`: one observation as JSON, or any number as NDJSON; a typed route per type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.errors import Unauthenticated
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.openapi import schemas
from headwater.api.openapi.components import Schema, documented
from headwater.api.openapi.documents import LineProblem, Reported, ReportedLines
from headwater.api.problems import problem_of
from headwater.api.requests import headers
from headwater.api.requests.body import check_media, parse_json, read_json
from headwater.api.requests.ndjson import MEDIA_TYPE, Line, largest_bytes, read_lines
from headwater.api.requests.parameters import check_no_query
from headwater.api.routing import router_of
from headwater.api.service import Service
from headwater.commands.declaring.observation import Report
from headwater.commands.errors import TooLarge, UnknownObservation
from headwater.commands.sending.pipeline import run_each
from headwater.eventlog.source_positions import SourcePosition
from headwater.eventlog.topics import OBSERVATIONS

BATCH_LINES: Final = 100
"""Lines that are read and checked per turn of the event loop: about two milliseconds in which nothing else runs."""
BATCHES: Final = 20
MAX_PROBLEMS: Final = 100
DESCRIPTION: Final = """\

Send one report as `application/json`, or any number as `application/x-ndjson`, one per line. The answer comes when all
valid reports are stored. Invalid lines do not stop the others; the answer lists at most 100 of them.

A report with the `source` and `id` of an earlier report is a duplicate of it, and queries leave it out. So after a lost
connection, send everything again.
"""


class _Batch(NamedTuple):
    """Lines that were read: the valid reports, and what is wrong with the others."""

    reports: list[tuple[Line, Report[Any]]]
    problems: list[LineProblem]


class _Taken(NamedTuple):
    """The result of some lines."""

    stored: int
    problems: Sequence[LineProblem]


def observation_routes(service: Service) -> APIRouter:
    """The route of all observations; the OpenAPI document has a path of each: see `observation_paths`."""
    router = router_of("observations")

    async def report(request: Request, observation: str) -> Response:
        check_no_query(request)
        if observation not in service.observations.types:
            raise UnknownObservation(observation, tuple(service.observations.types))
        headers.check_of_one_command(request, "the id and the source of a report identify it")
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media == MEDIA_TYPE:
            check_media(request, MEDIA_TYPE)
            return await _Lines(service, request, observation).answer()
        options = _options(request)
        is_personal = observation in service.observations.personal
        async with service.work.bodies.place() as place:
            body = await read_json(request, service.limits, place)
            if is_personal:  # it may make the key of a person
                service.guard.must_be_valid(caller_of(request))
            read = await service.bodies.read(len(body), _read, service, request, observation, body, waits=is_personal)
            service.guard.must_be_valid(caller_of(request))
            (position,) = await service.recorder.record([read], **options)
        document: Reported = {
            "id": f"{observation}/{read.source}/{read.id}",
            "position": str(SourcePosition(OBSERVATIONS, position)),
        }
        return Response(orjson.dumps(document), 201, media_type="application/json")

    router.add_api_route(
        "/observations/{observation:key}",
        report,
        methods=["POST"],
        dependencies=needs.of_parameter("observations", "observation"),
        include_in_schema=False,
    )
    return router


def observation_paths(service: Service) -> Schema:
    """The path of each observation, for the OpenAPI document."""
    answers = {
        201: schemas.answer("The report is stored.", "Reported"),
        200: schemas.answer("The valid lines are stored.", "ReportedLines"),
        **documented(400, 408, 413, 415, 422, 500, 503),
    }
    paths: Schema = {}
    for name, kind in service.observations.types.items():
        summary = (kind.__doc__ or name).strip()
        paths[f"/observations/{name}"] = {
            "post": schemas.operation(
                "observations",
                f"report {name}",
                summary.splitlines()[0],
                f"{summary}\n{DESCRIPTION}",
                f"observations:{name}",
                answers,
                **schemas.observation_request(name),
            )
        }
    return paths


def _read(service: Service, request: Request, name: str, body: bytes) -> Report[Any]:
    parse_json(request, body, service.limits)
    return service.observations.read(name, body, caller_of(request).claims)


def _options(request: Request) -> dict[str, str | None]:
    return {
        "correlation_id": headers.correlation_id(request),
        "traceparent": headers.traceparent(request),
        "actor": caller_of(request).name,
    }


class _Lines:
    """One request with many observations of one type."""

    def __init__(self, service: Service, request: Request, name: str) -> None:
        self._service, self._request, self._name = service, request, name
        self._caller = caller_of(request)
        self._options = _options(request)
        self._is_personal = name in service.observations.personal
        self._stored, self._refused = 0, 0
        self._problems: list[LineProblem] = []

    async def answer(self) -> Response:
        """Store the valid lines; raises LogUnavailable, Overloaded or BodyIncomplete."""
        async with self._service.work.many_lines.place():
            await run_each(self._batches(), self._store, self._count, BATCHES)
        problems = sorted(self._problems, key=lambda problem: problem["line"])
        document: ReportedLines = {"stored": self._stored, "refused": self._refused, "problems": problems}
        return Response(orjson.dumps(document), media_type="application/json")

    async def _batches(self) -> AsyncIterator[_Batch]:
        """The lines as they arrive, read one batch after another, so that they are stored in their order."""
        async for lines in read_lines(self._request, self._service.limits, self._service.reading, BATCH_LINES):
            expired = self._service.guard.refusal(self._caller)
            size_bytes = largest_bytes(lines)
            yield await self._service.bodies.read(size_bytes, self._read, lines, expired, waits=self._is_personal)

    def _read(self, lines: Sequence[Line], expired: Unauthenticated | None) -> _Batch:
        batch = _Batch([], [])
        for line in lines:
            try:
                if expired is not None:
                    raise expired
                content = line.checked(self._service.limits)
                batch.reports.append((line, self._service.observations.read(self._name, content, self._caller.claims)))
            except Exception as error:  # noqa: BLE001 - a line must not end the others; `problem_of` logs what is a bug
                batch.problems.append(self._problem(line, error))
        return batch

    async def _store(self, batch: _Batch) -> _Taken:
        if (expired := self._service.guard.refusal(self._caller)) is not None:  # while they waited
            refusals = (self._problem(line, expired) for line, _ in batch.reports)
            return _Taken(0, [*batch.problems, *refusals])
        refused = await self._record(batch.reports)
        return _Taken(len(batch.reports) - len(refused), [*batch.problems, *refused])

    async def _record(self, reports: Sequence[tuple[Line, Report[Any]]]) -> list[LineProblem]:
        """Store the reports, except those whose records are too large, which are returned; raises LogUnavailable."""
        try:
            await self._service.recorder.record([report for _, report in reports], **self._options)
        except TooLarge as error:
            if len(reports) == 1:
                return [self._problem(reports[0][0], error)]
            return [problem for report in reports for problem in await self._record([report])]
        return []

    def _problem(self, line: Line, error: Exception) -> LineProblem:
        return {"line": line.number, "problem": problem_of(error, self._request, line.document())}

    async def _count(self, batches: Sequence[_Taken]) -> None:
        for batch in batches:
            self._stored += batch.stored
            self._refused += len(batch.problems)
            self._problems += batch.problems[: MAX_PROBLEMS - len(self._problems)]
