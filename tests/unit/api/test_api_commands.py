"""Every answer that a command can get, over HTTP, with the gateway faked."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.commands.errors import BadDecision, Unanswered
from headwater.commands.handling.decision import failure
from headwater.commands.handling.erasing import ERASE
from headwater.commands.receipt import INTERNAL_ERROR, KEY_REUSED, STATE_TOO_LARGE, UNREADABLE, ReceiptError
from headwater.eventlog.envelope import Envelope
from headwater.eventlog.errors import LogUnavailable
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, fake_service, receipt
from tests.unit.commands.test_registry import INTERNAL

NDJSON = {"Content-Type": "application/x-ndjson"}
SELL = "/commands/listing.sell"
BODY = {"listing_id": "L1", "sold_for": 1}


def refused(client: AppClient, status: int, code: str, **request: Any) -> dict[str, Any]:
    """Send a command, check that it is refused with a problem document, and return that."""
    request = {"url": SELL, "json": BODY} | request
    if "content" in request:
        request.pop("json")
    answer = client.post(**request)
    problem: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["type"]) == (status, f"urn:headwater:problem:{code}"), problem
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == request["url"]
    return problem


def test_accepted(client: AppClient) -> None:
    answer = client.post(SELL, json=BODY)
    assert answer.status_code == 201
    assert answer.headers["etag"] == '"7"'
    assert answer.headers["location"] == "/streams/listing/L1"
    assert answer.json() == {
        "command_id": "c-1",
        "stream": "listing/L1",
        "version": 7,
        "events": [{"id": "listing/L1/7", "type": "listing.sold", "position": "3:1042"}],
        "position": "3:1042",
        "links": {"stream": "/streams/listing/L1", "receipt": "/receipts/c-1?stream=listing/L1"},
    }


def test_nothing_changed(client: AppClient, service: FakeService) -> None:
    service.gateway.answer = receipt(events=())
    answer = client.post(SELL, json=BODY)
    assert answer.status_code == 200
    assert answer.json()["position"] is None


def test_headers_are_passed_on(client: AppClient, service: FakeService) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {"Idempotency-Key": "k-1", "If-Match": '"7"', "X-Correlation-ID": "x", "X-Causation-ID": "y"}
    headers["traceparent"] = trace
    client.post(SELL, json=BODY, headers=headers)
    client.post(SELL, json=BODY, headers={"If-None-Match": "*", "traceparent": "nonsense"})
    new_id = service.gateway.calls[1]["command_id"]
    assert len(new_id) == 36
    assert service.gateway.calls == [
        {
            "type": "listing.sell",
            "command_id": "k-1",
            "expected_version": 7,
            "correlation_id": "x",
            "causation_id": "y",
            "traceparent": trace,
        },
        {
            "type": "listing.sell",
            "command_id": new_id,
            "expected_version": 0,
            "correlation_id": None,
            "causation_id": None,
            "traceparent": None,
        },
    ]


@pytest.mark.parametrize(
    "headers",
    [
        [("Idempotency-Key", "")],
        [("Idempotency-Key", "a b")],
        [("Idempotency-Key", "é".encode("latin-1"))],
        [("Idempotency-Key", "k" * 256)],
        [("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
        [("If-Match", "7")],
        [("If-Match", '"seven"')],
        [("If-Match", '"\u0667"'.encode())],
        [("If-Match", '"99999999999999999999"')],
        [("If-Match", "*")],
        [("If-Match", '"1", "2"')],
        [("If-None-Match", '"7"')],
        [("If-Match", '"7"'), ("If-None-Match", "*")],
        [("X-Correlation-ID", "a\tb")],
        [("X-Causation-ID", "a b")],
    ],
)
def test_wrong_header(client: AppClient, headers: list[tuple[str, str]]) -> None:
    problem = refused(client, 422, "bad_header", headers=headers)
    (fault,) = problem["errors"]
    assert problem["header"] == fault["header"] == headers[0][0]
    assert fault["detail"]


def test_unknown_command(client: AppClient) -> None:
    problem = refused(client, 404, "unknown_command", url="/commands/listing.burn")
    assert "listing.sell" in problem["known"]


def test_an_internal_command_is_like_an_unknown_one() -> None:
    client = AppClient(create_app(replace(fake_service(), commands=INTERNAL)))
    told = [client.post(f"/commands/lamp.{name}", json={"lamp_id": "L1"}).json() for name in ("dim", "burn")]
    assert [each["type"] for each in told] == ["urn:headwater:problem:unknown_command"] * 2
    assert told[0]["known"] == told[1]["known"] == ["lamp.light"]
    line = client.post("/commands", content=b'{"type": "lamp.dim", "body": {"lamp_id": "L1"}}', headers=NDJSON)
    assert line.json()["problem"]["type"] == "urn:headwater:problem:unknown_command"
    document = client.get("/openapi.json").text
    assert "lamp.light" in document
    assert "lamp.dim" not in document


def test_a_request_to_erase_events_is_no_command_of_a_client(client: AppClient) -> None:
    refused(client, 404, "unknown_command", url=f"/commands/{ERASE}")


@pytest.mark.parametrize(
    ("content", "column"),
    [
        (b'{"listing_id": ', 16),
        (b"", 1),
        (b"{'a': 1}", 2),
        (b'{"listing_id": "\xff"}', None),
        (b'{"a":"\\ud800"}', None),
    ],
)
def test_malformed_json_says_where(client: AppClient, content: bytes, column: int | None) -> None:
    problem = refused(client, 400, "malformed_json", content=content, headers={"content-type": "application/json"})
    assert problem["line"] == 1
    assert column is None or problem["column"] == column


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"listing_id": "L1"}, "#/sold_for"),
        ({"listing_id": "L1", "sold_for": "much"}, "#/sold_for"),
        ({"listing_id": "L1", "sold_for": 1.5}, "#/sold_for"),
        ({"listing_id": "L1", "sold_for": 10**40}, "#/sold_for"),
        ({"listing_id": "L1", "sold_for": True}, "#/sold_for"),
        ({"listing_id": "", "sold_for": 1}, "#/listing_id"),
        ({"listing_id": "L" * 101, "sold_for": 1}, "#/listing_id"),
        ({"listing_id": "L1", "sold_for": 1, "pool/size~": 1}, "#/pool~1size~0"),
        ({"listing_id": "L\x001", "sold_for": 1}, "#"),
        ([1], "#"),
        ("text", "#"),
    ],
)
def test_malformed_command_says_where(client: AppClient, body: Any, pointer: str) -> None:
    problem = refused(client, 422, "malformed_command", json=body)
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert all(set(error) == {"detail", "pointer"} and error["detail"] for error in problem["errors"])


def test_deep_nesting(client: AppClient) -> None:
    content = b'{"listing_id":' + b"[" * 200_000
    refused(client, 400, "malformed_json", content=content, headers={"content-type": "application/json"})
    content = b'{"listing_id":' + b"[" * 500 + b"]" * 500 + b"}"
    refused(client, 413, "too_complex", content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {},
    ],
)
def test_unsupported_media(client: AppClient, headers: dict[str, str]) -> None:
    refused(client, 415, "unsupported_media", content=b"{}", headers=headers)


def test_huge_body_by_its_length(client: AppClient) -> None:
    content = b'"' + b"x" * 600_000 + b'"'
    problem = refused(client, 413, "too_large", content=content, headers={"content-type": "application/json"})
    assert problem["limit_bytes"] == 512 * 1024


def test_huge_body_while_streaming(client: AppClient) -> None:
    sent = 0

    async def chunks() -> Any:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 100_000

    problem = refused(client, 413, "too_large", content=chunks(), headers={"content-type": "application/json"})
    assert problem["size_bytes"] <= 600_000


def test_query_parameters_are_not_ignored(client: AppClient) -> None:
    answer = client.post(f"{SELL}?dry_run=true", json=BODY)
    assert answer.status_code == 422


def test_rejected(client: AppClient, service: FakeService) -> None:
    error = ReceiptError("already_sold", '"L1" is sold')
    service.gateway.answer = receipt(outcome="rejected", events=(), error=error)
    problem = refused(client, 409, "rejected")
    assert problem["code"] == "already_sold"
    assert problem["detail"] == '"L1" is sold'


def test_wrong_version(client: AppClient, service: FakeService) -> None:
    error = ReceiptError("wrong_version", "", expected=3, actual=7)
    service.gateway.answer = receipt(outcome="conflict", events=(), error=error)
    problem = refused(client, 412, "wrong_version")
    assert (problem["stream"], problem["expected"], problem["actual"]) == ("listing/L1", 3, 7)


@pytest.mark.parametrize(
    ("code", "status", "named"),
    [
        (KEY_REUSED, 422, "idempotency_key_reused"),
        (UNREADABLE, 422, "unreadable_command"),
        (INTERNAL_ERROR, 500, "decide_failed"),
    ],
)
def test_failed(client: AppClient, service: FakeService, code: str, status: int, named: str) -> None:
    service.gateway.answer = receipt(outcome="failed", events=(), error=ReceiptError(code, "it broke"))
    problem = refused(client, status, named)
    assert problem["command_id"] == "c-1"
    assert status != 500 or problem["error_id"]


def test_a_failed_command_has_one_error_id_in_the_answer_and_in_both_logs(
    client: AppClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    envelope = Envelope("c-1", "listing.sell", "listing/L1", datetime(2026, 1, 2, tzinfo=UTC), {})
    for failed in (OSError("oops"), BadDecision("x" * 20_000, STATE_TOO_LARGE)):
        caplog.clear()
        error = failure(envelope, failed)  # the handler's log
        service.gateway.answer = receipt(outcome="failed", events=(), error=error)
        problem = refused(client, 500, "decide_failed")
        found = {
            match for record in caplog.records for match in re.findall(r"\b[0-9a-f]{12,16}\b", record.getMessage())
        }
        assert found == {problem["error_id"]}
        assert len([record for record in caplog.records if problem["error_id"] in record.getMessage()]) == 2
        assert problem["detail"].count(problem["error_id"]) == 1


def test_the_log_is_away(client: AppClient, service: FakeService) -> None:
    service.gateway.error = LogUnavailable("appending", "no broker")
    answer = client.post(SELL, json=BODY)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


def test_no_answer_in_time(client: AppClient, service: FakeService) -> None:
    service.gateway.error = Unanswered("c-9", "listing/L1", 10)
    problem = refused(client, 504, "unanswered")
    assert problem["command_id"] == "c-9"
    assert client.get("/receipts/c-9?stream=listing/L1").status_code == 404
    service.gateway.known["c-9"] = receipt(command_id="c-9")
    later = client.get("/receipts/c-9?stream=listing/L1")
    assert later.status_code == 200
    assert later.json()["outcome"] == "accepted"
    assert later.headers["etag"] == '"7"'


def test_a_receipt_that_is_not_known_yet_is_no_missing_one(client: AppClient, service: FakeService) -> None:
    service.gateway.ready = False
    answer = client.get("/receipts/c-9?stream=listing/L1")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:headwater:problem:earlier_receipts_unread")
    service.gateway.known["c-9"] = receipt(command_id="c-9")
    assert client.get("/receipts/c-9?stream=listing/L1").status_code == 200


def test_a_command_s_path_takes_commands_only(client: AppClient, service: FakeService) -> None:
    service.gateway.known["listing.sell"] = receipt(command_id="listing.sell")
    for path in (SELL, "/commands/c-9"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (405, "urn:headwater:problem:method_not_allowed")
        assert answer.headers["allow"] == "POST"


def test_a_receipt_by_an_id_with_slashes(client: AppClient, service: FakeService) -> None:
    service.gateway.known["a/b"] = receipt("listing/ü/1", command_id="a/b")
    answer = client.get("/receipts/a%2Fb?stream=listing/%C3%BC/1")
    assert answer.status_code == 200
    assert answer.headers["location"] == "/streams/listing/%C3%BC%2F1"


def test_a_receipt_of_a_stream_and_an_origin(client: AppClient, service: FakeService) -> None:
    service.gateway.known["c-9"] = receipt("listing/ü", command_id="c-9", origin="client")
    found = client.get("/receipts/c-9?stream=listing/%C3%BC&origin=client").json()
    assert found["origin"] == "client"
    assert service.gateway.calls[-1] == {"receipt": "c-9", "stream": "listing/ü", "origin": "client"}
    for query in ("", "stream=a&origin=somebody", "streams=listing/L1", "stream=a&stream=b"):
        answer = client.get(f"/receipts/c-9?{query}")
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:headwater:problem:bad_parameter"), query


def test_a_bug_is_answered_with_an_error_id(client: AppClient, service: FakeService) -> None:
    service.gateway.error = ZeroDivisionError("oops")
    problem = refused(client, 500, "internal_error")
    assert problem["error_id"] in problem["detail"]
    assert "oops" not in str(problem)


def test_unknown_path_and_method(client: AppClient) -> None:
    missing, wrong = client.get("/nowhere"), client.request("PUT", "/views", json={})
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:headwater:problem:not_found")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert wrong.headers["content-type"] == "application/problem+json"
