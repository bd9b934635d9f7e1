"""Traces of one process: when they are recorded, what is sent, and what a collector that fails costs."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from headwater.compose.ports import free_port
from headwater.eventlog.tracing import spans
from headwater.eventlog.tracing.recording import Reporting
from headwater.eventlog.tracing.spans import FLUSH_S, is_configured, traced
from tests.support.collector import collecting, recorded
from tests.support.waiting import eventually

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"
TRACE, PARENT = SAMPLED.split("-")[1:3]
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def alone() -> None:
    """An earlier test's recorder may still try to send: pytest then adds its handlers to the logger that it silenced,
    and its attempts draw random numbers, which hypothesis would find in another test.
    """
    eventually(lambda: logging.getLogger("opentelemetry").propagate, "earlier recorders have ended")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "false"}, True),
        ({ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "console, otlp"}, True),
    ],
)
def test_an_endpoint_turns_traces_on(variables: dict[str, str], expected: bool) -> None:
    assert is_configured(variables) is expected


@pytest.mark.programs
def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    script = (
        "import sys, headwater.commands.service, headwater.api.server.serving, headwater.projections.__main__, os\n"
        "from headwater.eventlog.tracing.spans import traced\n"
        "with traced(os.environ, 'headwater'): pass\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_what_has_no_sampled_context_has_no_span() -> None:
    assert spans.continued("a", SAMPLED) is None  # nothing records
    with recorded() as found:
        assert spans.continued("a", None) is None
        assert spans.continued("a", UNSAMPLED) is None
        assert spans.continued("a", "00-nothing-01") is None
        assert spans.continued("a", "") is None
        assert spans.received("POST", UNSAMPLED) is None
    assert found == []


@pytest.mark.parametrize("sampler", ["parentbased_always_off", "parentbased_traceidratio", "always_on"])
def test_a_span_continues_the_trace_and_its_context_is_what_follows(
    monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    with recorded() as found:
        before_ns = time.time_ns()
        span = spans.continued("decide", SAMPLED, "consumer", {"kind": "x", "outcome": "?"})
        assert span is not None
        below, followed = spans.continued("commit", span.traceparent), time.time_ns()
        assert below is not None
        below.link(SAMPLED)
        below.end(error="failed")
        below.end()  # the first one counts
        span.end({"outcome": "accepted"}, name="decided")
    decide, commit = found.named("decided"), found.named("commit")
    assert (decide.trace, decide.parent, commit.parent) == (TRACE, PARENT, decide.id)
    assert span.traceparent == f"00-{TRACE}-{decide.id}-01"
    assert before_ns <= decide.began_ns <= commit.began_ns <= followed <= commit.ended_ns <= decide.ended_ns
    assert (decide.facts, commit.links) == ({"kind": "x", "outcome": "accepted"}, ((TRACE, PARENT),))
    assert (decide.failed, commit.failed) == (False, True)


@pytest.mark.parametrize(
    ("sampler", "argument", "of_none", "of_sampled", "of_unsampled"),
    [
        ("", "", True, True, False),
        ("parentbased_traceidratio", "0", False, True, False),
        ("traceidratio", "1", True, True, True),
        ("always_off", "", False, False, False),
    ],
)
def test_the_sampler_decides_on_requests(
    monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str, of_none: bool, of_sampled: bool, of_unsampled: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    with recorded():
        made = [spans.received("GET", each) is not None for each in (None, SAMPLED, UNSAMPLED)]
        assert (spans.begun("line", "producer") is not None) is of_none
    assert made == [of_none, of_sampled, of_unsampled]


def test_a_batch_and_its_messages_lead_to_each_other_and_have_traces_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    other = SAMPLED.replace("0af7", "1af7")
    with recorded() as found:
        members = [spans.continued(name, each) for name, each in (("a", SAMPLED), ("b", other))]
        spans.end_together("batch", [member for member in members if member], 1_000, 2_000, {"records": 9})
    a, b, batch = found.named("a"), found.named("b"), found.named("batch")
    assert batch.parent == ""
    assert len({a.trace, b.trace, batch.trace}) == 3
    assert batch.links == ((a.trace, a.id), (b.trace, b.id))
    assert a.links == b.links == ((batch.trace, batch.id),)
    assert (batch.began_ns, batch.ended_ns, a.ended_ns) == (1_000, 2_000, 2_000)


def test_every_process_knows_the_span_of_a_patch() -> None:
    number, context = spans.span_of(SAMPLED, "listings@1", "0/7/0")
    assert (number, context) == spans.span_of(SAMPLED, "listings@1", "0/7/0")
    assert number != spans.span_of(SAMPLED, "listings@1", "0/8/0")[0]
    with recorded() as found:
        patch = spans.continued("patch", SAMPLED, span_id=number)
        other = spans.continued("other", SAMPLED)
        assert patch is not None
        assert other is not None
        assert patch.traceparent == context
        patch.end()
        other.end()
    assert found.named("patch").id != found.named("other").id


def test_spans_arrive_at_a_collector_with_the_name_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=7")
        with traced(os.environ, "shop", "handler"):
            assert spans.is_on()
            one(SAMPLED)
        assert not spans.is_on()
    (span,) = collector.spans
    assert (span.service, span.name, span.trace) == ("headwater-handler", "one", TRACE)


def test_the_service_may_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "bank")
        with traced(os.environ, "shop", "handler"):
            one(SAMPLED)
    assert [span.service for span in collector.spans] == ["bank"]


def one(traceparent: str) -> None:
    span = spans.continued("one", traceparent)
    assert span is not None
    span.end()


def test_an_unreachable_collector_is_one_warning_and_its_spans_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, f"http://user:secret@127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with caplog.at_level(logging.WARNING), traced(os.environ, "shop", "handler"):
        for _ in range(500):  # much more than the queue has room for: nobody waits
            one(SAMPLED)
        eventually(
            lambda: any(record.getMessage().startswith("traces cannot") for record in caplog.records), "it warns"
        )
    messages = [record.getMessage() for record in caplog.records]
    assert len([message for message in messages if message.startswith("traces cannot be sent")]) == 1
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert "secret" not in " ".join(messages)


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spans, "FLUSH_S", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    assert FLUSH_S <= 5
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with caplog.at_level(logging.WARNING), traced(os.environ, "shop", "handler"):
            one(SAMPLED)
    assert [record.getMessage() for record in caplog.records] == [
        "the last traces are lost: the collector did not take them within 0.05 s"
    ]
    # its attempts draw random numbers, which hypothesis would find in another test
    eventually(lambda: "traces" not in {span.name for span in threading.enumerate()}, "it has given up")


def test_libraries_stay_silent_if_an_earlier_recorder_ends_late(caplog: pytest.LogCaptureFixture) -> None:
    earlier, later = (Reporting(ConsoleSpanExporter()) for _ in range(2))
    earlier.shutdown()
    logging.getLogger("opentelemetry.exporter").warning("one attempt of many")
    assert not caplog.records
    later.shutdown()
    logging.getLogger("opentelemetry.exporter").warning("nobody reports")
    assert [record.getMessage() for record in caplog.records] == ["nobody reports"]


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_collector_that_refuses_is_named_with_its_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    with collecting(status) as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        with caplog.at_level(logging.WARNING), traced(os.environ, "shop", "handler"):
            one(SAMPLED)
    (record,) = [record for record in caplog.records if "traces cannot be sent" in record.getMessage()]
    assert str(status) in record.getMessage()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, '"OTEL_EXPORTER_OTLP_PROTOCOL" is "grpc"'),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "only http/protobuf is supported"),
    ],
)
def test_a_wrong_variable_is_a_warning_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variables: dict[str, str], says: str
) -> None:
    for name, value in {ENDPOINT: "http://127.0.0.1:1", **variables}.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING), traced(os.environ, "shop", "handler"):
        assert not spans.is_on()
    (record,) = caplog.records
    assert says in record.getMessage()


def test_without_its_packages_a_warning_says_which_extra_has_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def found(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(spans, "find_spec", found)
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    with caplog.at_level(logging.WARNING), traced(os.environ, "shop", "handler"):
        assert not spans.is_on()
    (record,) = caplog.records
    assert "headwater[traces]" in record.getMessage()


def test_a_sampler_that_is_none_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    with recorded():
        assert spans.received("GET", None) is not None
