"""The spans of requests, and the trace contexts that commands and observations get from them."""

from __future__ import annotations

import json
import logging
from typing import Any

import orjson
import pytest

from headwater.api.app import create_app
from headwater.eventlog.programs.logs import JsonLines
from tests.support.collector import recorded
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, fake_service
from tests.unit.api.test_api_bulk import NDJSON, answers, ndjson, sell
from tests.unit.api.test_guard_routes import guarded

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
SELL: dict[str, Any] = {"listing_id": "L1", "sold_for": 1}
NEVER = "parentbased_always_off"


def test_a_request_of_a_sampled_trace_has_a_span_and_its_command_follows_it(
    client: AppClient, service: FakeService
) -> None:
    with recorded() as found:
        client.post("/commands/listing.sell", json=SELL, headers={"traceparent": SAMPLED})
    (span,) = found  # that of the command ends with its receipt, of the real gateway
    assert (span.name, span.trace, span.parent) == ("POST /commands/listing.sell", TRACE, "b7ad6b7169203331")
    assert span.facts == {
        "http.request.method": "POST",
        "http.route": "/commands/listing.sell",
        "http.response.status_code": 201,
    }
    (call,) = service.gateway.calls
    assert call["traceparent"].split("-")[1] == TRACE
    assert call["traceparent"].split("-")[2] not in (span.id, "b7ad6b7169203331")


@pytest.mark.parametrize("headers", [{"traceparent": UNSAMPLED}, {"traceparent": "nonsense"}, {}])
def test_a_request_that_is_not_sampled_passes_its_context_on(
    client: AppClient, service: FakeService, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", NEVER)
    with recorded() as found:
        client.post("/commands/listing.sell", json=SELL, headers=headers)
    assert found == []
    (call,) = service.gateway.calls
    assert call["traceparent"] == (UNSAMPLED if headers.get("traceparent") == UNSAMPLED else None)


def test_without_a_context_the_sampler_decides(client: AppClient, service: FakeService) -> None:
    with recorded() as found:
        client.post("/commands/listing.sell", json=SELL)
    (span,) = found
    assert span.parent == ""
    assert service.gateway.calls[0]["traceparent"].split("-")[1] == span.trace


def test_a_read_has_a_span_without_keys_and_filters(client: AppClient) -> None:
    with recorded() as found:
        client.get("/views/listings/secret-key?fields=city", headers={"traceparent": SAMPLED})
        client.get("/nowhere/secret-path", headers={"traceparent": SAMPLED})
    assert [span.name for span in found] == ["GET /views/listings/{key}", "GET none"]
    assert "secret" not in str(found)


def test_what_is_polled_has_no_span(client: AppClient) -> None:
    with recorded() as found:
        client.get("/health/live")
        client.get("/metrics")
    assert found == []


def test_who_is_not_known_cannot_have_spans_sent() -> None:
    made = AppClient(create_app(guarded(fake_service())))
    with recorded() as found:
        assert made.get("/views", headers={"traceparent": SAMPLED}).status_code == 401
    assert found == []


def test_a_failure_is_marked_and_its_message_is_not_told(client: AppClient, service: FakeService) -> None:
    service.gateway.error = ValueError("secret")
    with recorded() as found:
        client.post("/commands/listing.sell", json=SELL, headers={"traceparent": SAMPLED})
    (span,) = found
    assert span.failed
    assert span.facts["http.response.status_code"] == 500
    assert "secret" not in str(found)


def test_lines_of_a_sampled_request_follow_it_unless_they_have_contexts_of_their_own(
    client: AppClient, service: FakeService
) -> None:
    own = f"00-{'1' * 32}-{'2' * 16}-00"
    with recorded() as found:
        answers(client, ndjson(sell("L1"), sell("L2", traceparent=own)), traceparent=SAMPLED)
    contexts = [call["traceparent"] for call in service.gateway.calls]
    assert (contexts[0].split("-")[1], contexts[1]) == (TRACE, own)
    assert [span.name for span in found] == ["POST /commands"]


def test_lines_without_any_context_have_traces_of_their_own(
    client: AppClient, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded() as found:
        answers(client, ndjson(sell("L1"), sell("L2")))
    traces = {call["traceparent"].split("-")[1] for call in service.gateway.calls}
    assert len({*traces, found[0].trace}) == 3
    service.gateway.calls.clear()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", NEVER)
    with recorded():
        answers(client, ndjson(sell("L1"), sell("L2")))
    assert [call["traceparent"] for call in service.gateway.calls] == [None, None]


def test_nothing_changes_if_nothing_is_recorded(client: AppClient, service: FakeService) -> None:
    client.post("/commands/listing.sell", json=SELL, headers={"traceparent": SAMPLED})
    client.post("/commands", content=orjson.dumps(sell("L1")), headers=NDJSON | {"traceparent": SAMPLED})
    assert [call["traceparent"] for call in service.gateway.calls] == [SAMPLED, SAMPLED]


def test_log_lines_of_a_request_name_the_trace_that_the_sampler_has_begun(
    client: AppClient, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines("api").format(record))

    kept, logger = Kept(), logging.getLogger("headwater.api")
    logger.addHandler(kept)
    service.gateway.error = ValueError("broken")
    try:
        with recorded() as found:
            client.post("/commands/listing.sell", json=SELL)
    finally:
        logger.removeHandler(kept)
    (line,) = map(json.loads, lines)
    assert line["trace_id"] == found[0].trace
