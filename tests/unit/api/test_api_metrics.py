"""`GET /metrics`, and the requests that it counts."""

from __future__ import annotations

from dataclasses import replace

from headwater.api.app import create_app
from headwater.eventlog.programs.metrics import REGISTRY
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import fake_service


def requests(route: str, status: int, method: str = "GET") -> float:
    labels = {"method": method, "route": route, "status": str(status)}
    return REGISTRY.get_sample_value("headwater_http_requests_total", labels) or 0.0


def test_requests_are_counted_by_their_routes_whatever_the_paths_are() -> None:
    client, route = AppClient(create_app(fake_service())), "/views/listings/{key}"
    before = requests(route, 404), requests("none", 404), requests("none", 405, "other")
    for key in ("a", "b", "c"):
        assert client.get(f"/views/listings/{key}").status_code == 404
    assert client.get("/nowhere/at/all").status_code == 404
    after = requests(route, 404), requests("none", 404), requests("none", 405, "other")
    assert [now - then for now, then in zip(after, before, strict=True)][:2] == [3, 1]
    took = REGISTRY.get_sample_value("headwater_http_request_seconds_count", {"route": route})
    assert took is not None and took >= 3


def test_the_text_has_the_metrics_of_this_process() -> None:
    answer = AppClient(create_app(fake_service())).get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE headwater_http_requests_total counter" in answer.text
    assert "process_resident_memory_bytes" in answer.text


def test_one_of_several_workers_says_where_metrics_are() -> None:
    answer = AppClient(create_app(replace(fake_service(), workers=4))).get("/metrics")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:headwater:problem:several_workers"
    assert "HEADWATER_METRICS_PORT" in answer.json()["detail"]
