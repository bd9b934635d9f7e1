"""The client of Kafka Connect against a real HTTP server, which answers as Connect does, or as it should not."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from headwater.compose.ports import free_port
from headwater.eventlog.capturing.errors import ConnectError, ConnectUnavailable
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect, reason_of
from tests.support.waiting import BOUND_S

TRACE = """org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)
Caused by: io.debezium.DebeziumException: Couldn't obtain encoding for database shop
\tat io.debezium.connector.postgresql.X(Y.java:1)
\t... 9 more
Caused by: org.postgresql.util.PSQLException: FATAL: password authentication failed for user "shop"
\tat org.postgresql.core.v3.Z(Z.java:1)
"""


class Worker:
    """An HTTP server. answers: by "METHOD path", a list of (status, document), the last of which is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.requests: list[tuple[str, Any]] = []
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                request = f"{self.command} {self.path}"
                worker.requests.append((request, json.loads(body) if body else None))
                found = worker.answers.get(request, [(404, {"error_code": 404, "message": "not found"})])
                status, document = found.pop(0) if len(found) > 1 else found[0]
                text = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def connect(worker: Worker) -> Iterator[KafkaConnect]:
    client = KafkaConnect(worker.url, retry_s=BOUND_S)
    yield client
    client.close()


def test_a_connector_that_is_not_there_is_none(connect: KafkaConnect) -> None:
    assert connect.config("x") is None
    assert connect.state("x") is None
    connect.remove("x")


def test_a_request_is_repeated_while_connect_rebalances(connect: KafkaConnect, worker: Worker) -> None:
    rebalancing = (
        409,
        {"error_code": 409, "message": "Cannot complete request momentarily due to stale configuration"},
    )
    worker.answers["PUT /connectors/x/config"] = [rebalancing, rebalancing, (200, {})]
    connect.register("x", {"a": "b"})
    assert worker.requests == [("PUT /connectors/x/config", {"a": "b"})] * 3


def test_it_is_not_repeated_for_ever(worker: Worker) -> None:
    worker.answers["PUT /connectors/x/pause"] = [(409, {"message": "rebalance"})]
    client = KafkaConnect(worker.url, retry_s=1.0)
    with closing(client), pytest.raises(ConnectError, match="has been rebalancing"):
        client.pause("x")
    assert len(worker.requests) <= 10


def test_only_what_failed_is_restarted(connect: KafkaConnect, worker: Worker) -> None:
    request = "POST /connectors/x/restart?includeTasks=true&onlyFailed=true"
    worker.answers[request] = [(409, {"message": "rebalance"}), (202, {"name": "x", "tasks": []})]
    assert connect.restart_failed("x")
    assert worker.requests == [(request, None)] * 2
    assert not connect.restart_failed("y"), "it is not registered"


def test_a_refusal_is_said_in_one_line_and_not_repeated(connect: KafkaConnect, worker: Worker) -> None:
    worker.answers["PUT /connectors/x/config"] = [
        (400, {"error_code": 400, "message": "invalid:\n\tpassword is wrong"})
    ]
    with pytest.raises(ConnectError, match="refused PUT /connectors/x/config: invalid: password is wrong"):
        connect.register("x", {})
    assert len(worker.requests) == 1


@pytest.mark.parametrize("document", [b"<html>", {}, [], "text", None])
def test_another_server_is_told_from_connect(connect: KafkaConnect, worker: Worker, document: Any) -> None:
    worker.answers["PUT /connectors/x/resume"] = [(500, document)]
    with pytest.raises(ConnectError, match="HTTP 500, so HEADWATER_CONNECT may be another"):
        connect.resume("x")


@pytest.mark.parametrize("document", [b"<html>", {}, [], "text", None, [1], {"connector": 1}])
def test_an_answer_of_another_form_is_an_error_and_no_crash(
    connect: KafkaConnect, worker: Worker, document: Any
) -> None:
    worker.answers["GET /connectors/x/status"] = [(200, document)]
    with pytest.raises(ConnectError, match="HEADWATER_CONNECT may be another"):
        connect.state("x")


def test_a_server_that_is_away_is_named() -> None:
    client = KafkaConnect(f"http://127.0.0.1:{free_port()}", retry_s=0.2)
    with pytest.raises(ConnectUnavailable, match=r"does not answer.*start it, or set HEADWATER_CONNECT"):
        client.config("x")


def test_the_state_is_that_of_the_task_with_its_reasons(connect: KafkaConnect, worker: Worker) -> None:
    def answer(connector: str, *tasks: dict[str, Any]) -> None:
        worker.answers["GET /connectors/x/status"] = [(200, {"connector": {"state": connector}, "tasks": list(tasks)})]

    answer("RUNNING", {"id": 0, "state": "FAILED", "trace": TRACE})
    state = connect.state("x")
    assert state is not None
    assert state.state == "FAILED"
    assert state.error == (
        "An exception occurred in the change event producer.: Couldn't obtain encoding for database shop: "
        'FATAL: password authentication failed for user "shop"'
    )
    answer("RUNNING", {"id": 0, "state": "RUNNING"})
    state = connect.state("x")
    assert state == ConnectorState("RUNNING", "RUNNING")
    assert state.is_running
    answer("RUNNING")
    assert connect.state("x") == ConnectorState("RUNNING", "")
    answer("PAUSED", {"id": 0, "state": "RUNNING"})
    state = connect.state("x")
    assert state is not None
    assert (state.state, state.is_running) == ("PAUSED", False)


def test_problems_of_a_configuration_are_listed_by_property(connect: KafkaConnect, worker: Worker) -> None:
    configs = [
        {"value": {"name": "database.hostname", "errors": ["Error while\nvalidating"]}},
        {"value": {"name": "slot.name", "errors": []}},
        {"value": None},
    ]
    worker.answers["PUT /connector-plugins/a.B/config/validate"] = [(200, {"configs": configs})]
    assert connect.problems("x", {"connector.class": "a.B"}) == ["database.hostname: Error while validating"]
    assert worker.requests[0][1]["name"] == "x"


def test_a_trace_of_any_form_gives_a_reason() -> None:
    assert reason_of("") == ""
    assert reason_of("something else") == "something else"
    assert reason_of("java.lang.NullPointerException\n\tat x") == "java.lang.NullPointerException"


def test_the_password_of_connect_is_sent_and_never_shown(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    sent: list[str] = []
    send = httpx.HTTPTransport.handle_request

    def handle(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["Authorization"])
        return send(self, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    url = worker.url.replace("http://", "http://me:hu%2Fsh@")
    client = KafkaConnect(url, retry_s=0.2)
    assert client.url == worker.url
    worker.answers["GET /connectors/x/config"] = [(200, [])]
    worker.answers["PUT /connectors/x/pause"] = [(500, {"message": "no"})]
    worker.answers["PUT /connectors/x/stop"] = [(409, {})]
    said = []
    for act in (client.config, client.pause, client.stop):
        with pytest.raises(ConnectError) as raised:
            act("x")
        said.append(str(raised.value))
    client.close()
    away = KafkaConnect(f"http://me:hush@127.0.0.1:{free_port()}", retry_s=0.2)
    with pytest.raises(ConnectUnavailable) as unavailable:
        away.config("x")
    away.close()
    shown = "\n".join([*said, str(unavailable.value), repr(unavailable.value.__cause__), caplog.text])
    assert set(sent) <= {"Basic bWU6aHUvc2g=", "Basic bWU6aHVzaA=="}
    assert len(set(sent)) == 2
    for secret in ("hu%2Fsh", "hu/sh", "hush", "me:"):
        assert secret not in shown
