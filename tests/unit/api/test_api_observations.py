"""Observations over HTTP, one and many, with the recorder faked."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import field_validator

from headwater.api.app import create_app
from headwater.commands.declaring.observation import Observation, ObservationRegistry
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.topics import OBSERVATIONS
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import PARTITIONS, FakeService

VIEWED = "/observations/listing_viewed"
NDJSON = {"content-type": "application/x-ndjson"}


def report(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {"id": f"v-{number}", "source": "web", "data": {"listing_id": "L1"}} | changes


def test_one(client: AppClient, service: FakeService) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = client.post(VIEWED, json=report(), headers={"X-Correlation-ID": "x", "traceparent": trace})
    assert (answer.status_code, answer.json()) == (
        201,
        {"id": "listing_viewed/web/v-1", "position": "observations/0:0"},
    )
    recorder = service.recorder
    assert recorder.options == {"correlation_id": "x", "traceparent": trace, "actor": None}
    assert recorder.reports[0].data.came_from == "unknown"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"id": ""}, "#/id"),
        ({"id": "a b"}, "#/id"),
        ({"id": 1}, "#/id"),
        ({"id": None}, "#/id"),
        ({"source": "a/b"}, "#/source"),
        ({"source": "a\n"}, "#/source"),
        ({"time": "yesterday"}, "#/time"),
        ({"time": "2026-01-02T03:04:05"}, "#/time"),
        ({"time": "1969-12-31T23:59:59Z"}, "#/time"),
        ({"time": "9999-01-01T00:00:00Z"}, "#/time"),
        ({"more": 1}, "#/more"),
        ({"data": {}}, "#/data/listing_id"),
        ({"data": {"listing_id": "L1", "seconds": -1}}, "#/data/seconds"),
        ({"data": {"listing_id": "L1", "came_from": "space"}}, "#/data/came_from"),
        ({"data": {"listing_id": "L\0"}}, "#"),
    ],
)
def test_one_that_does_not_fit(client: AppClient, changes: dict[str, Any], pointer: str) -> None:
    problem = client.post(VIEWED, json=report(**changes)).json()
    assert (problem["status"], problem["type"]) == (422, "urn:headwater:problem:malformed_observation")
    assert pointer in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize("path", [VIEWED, "/commands/listing.sell", "/commands"])
def test_a_path_without_query_parameters_says_so(client: AppClient, path: str) -> None:
    detail = client.post(f"{path}?dry=1", json=report()).json()["detail"]
    assert detail == '"dry" is not a parameter here: this path has no query parameters'


def test_a_backslash_before_u0000_is_no_nul(client: AppClient) -> None:
    content = b'{"id":"1","source":"web","data":{"listing_id":"\\\\u0000"}}'
    assert client.post(VIEWED, content=content, headers={"content-type": "application/json"}).status_code == 201


@pytest.mark.parametrize(
    ("path", "request_", "status", "code"),
    [
        ("/observations/nothing", {"json": report()}, 404, "unknown_observation"),
        (VIEWED + "?dry=1", {"json": report()}, 422, "bad_parameter"),
        (VIEWED, {"content": b"{", "headers": {"content-type": "application/json"}}, 400, "malformed_json"),
        (VIEWED, {"content": b"{}", "headers": {"content-type": "text/plain"}}, 415, "unsupported_media"),
        (VIEWED, {"content": b"{}", "headers": NDJSON | {"content-encoding": "br"}}, 415, "unsupported_media"),
        (VIEWED, {"content": b"{}", "headers": NDJSON | {"X-Correlation-ID": "a b"}}, 422, "bad_header"),
        (VIEWED, {"json": "x" * 600_000}, 413, "too_large"),
    ],
)
def test_wrong_requests(client: AppClient, path: str, request_: dict[str, Any], status: int, code: str) -> None:
    answer = client.post(path, **request_)
    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:headwater:problem:{code}")


def test_many_and_those_that_do_not_fit(client: AppClient, service: FakeService) -> None:
    lines: list[bytes] = [orjson.dumps(report(number)) for number in range(1000)]
    lines[10] = b"{nonsense"
    lines[20] = orjson.dumps(report(id=""))
    lines[30] = b"[" * 600_000
    lines[40] = b""
    answer = client.post(VIEWED, content=b"\n".join(lines), headers=NDJSON)
    found = answer.json()
    assert (answer.status_code, found["stored"], found["refused"]) == (200, 996, 3)
    assert [(line["line"], line["problem"]["status"]) for line in found["problems"]] == [
        (11, 422),
        (21, 422),
        (31, 413),
    ]
    assert [error["pointer"] for error in found["problems"][1]["problem"]["errors"]] == ["#/id"]
    recorder = service.recorder
    assert [each.id for each in recorder.reports[:3]] == ["v-0", "v-1", "v-2"]


class Seen(Observation, type="seen"):
    kind: str

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind == "exit":
            sys.exit(3)
        if kind == "generator exit":
            raise GeneratorExit
        return {"a": "A", "b": "B", "large": "x" * MAX_RECORD_BYTES}[kind]


def test_whatever_a_validator_raises_its_line_is_refused_and_the_others_are_stored(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    client = AppClient(create_app(replace(service, observations=ObservationRegistry([("here", Seen)]))))
    kinds = ("a", "unknown", "exit", "generator exit", "b")
    reports = [report(number, data={"kind": kind}) for number, kind in enumerate(kinds)]
    found = client.post("/observations/seen", content=b"\n".join(map(orjson.dumps, reports)), headers=NDJSON).json()
    assert (found["stored"], found["refused"]) == (2, 3)
    assert [each.data.kind for each in service.recorder.reports] == ["A", "B"]
    assert [line["line"] for line in found["problems"]] == [2, 3, 4]
    for line, at in zip(found["problems"], (1, 2, 3), strict=True):
        assert line["problem"]["type"] == "urn:headwater:problem:internal_error"
        assert line["problem"]["error_id"] in caplog.text
        assert client.post("/observations/seen", json=reports[at]).status_code == 500


def test_a_report_whose_record_is_too_large_is_refused_and_the_others_are_stored(service: FakeService) -> None:
    registry = ObservationRegistry([("here", Seen)])
    made = replace(service, observations=registry, recorder=ObservationRecorder(service.log))  # type: ignore[arg-type]
    client = AppClient(create_app(made))
    reports = [report(number, data={"kind": kind}) for number, kind in enumerate(("a", "large", "b", "large"))]
    found = client.post("/observations/seen", content=b"\n".join(map(orjson.dumps, reports)), headers=NDJSON).json()
    assert (found["stored"], found["refused"]) == (2, 2)
    assert [(line["line"], line["problem"]["status"]) for line in found["problems"]] == [(2, 413), (4, 413)]
    assert sum(service.log.end(OBSERVATIONS, partition) for partition in range(PARTITIONS)) == 2
    alone = client.post("/observations/seen", json=reports[1])
    assert alone.status_code == 413
    assert 'the record of observation "seen/web/v-1" has' in alone.json()["detail"]


def test_not_every_problem_is_told(client: AppClient) -> None:
    found = client.post(VIEWED, content=b"1\n" * 1000, headers=NDJSON).json()
    assert (found["stored"], found["refused"], len(found["problems"])) == (0, 1000, 100)


def test_the_log_is_away(client: AppClient, service: FakeService) -> None:
    recorder = service.recorder
    recorder.error = LogUnavailable("appending", "no broker")
    for answer in (
        client.post(VIEWED, json=report()),
        client.post(VIEWED, content=orjson.dumps(report()) + b"\n", headers=NDJSON),
    ):
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:log_unavailable")
        assert answer.headers["retry-after"]
