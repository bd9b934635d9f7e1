"""A collector of traces: it takes what OpenTelemetry's exporter sends by OTLP over HTTP, and keeps the spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headwater.eventlog.tracing.recording import OpenTelemetryRecorder
from headwater.eventlog.tracing.spans import record_with


@dataclass(frozen=True)
class Seen:
    """A span. parent: its id, empty in the first span of a trace. links: trace and id of others."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    facts: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    began_ns: int
    ended_ns: int
    failed: bool


@dataclass
class Collector:
    """What has arrived; requests: how many times something was sent."""

    url: str
    spans: list[Seen] = field(default_factory=list)
    requests: int = 0

    @property
    def variables(self) -> dict[str, str]:
        """What lets a process send its spans here at once."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}

    def trace(self, trace: str) -> list[Seen]:
        """The spans of one trace."""
        return [span for span in list(self.spans) if span.trace == trace]


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector on a free port, which answers with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests += 1
            if status == 200:
                collector.spans += received(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def received(body: bytes) -> list[Seen]:
    """The spans of one request of an exporter."""
    request = ExportTraceServiceRequest.FromString(body)
    found = []
    for resource in request.resource_spans:
        facts = {attribute.key: attribute.value for attribute in resource.resource.attributes}
        for scope in resource.scope_spans:
            found += [
                Seen(
                    facts["service.name"].string_value,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    {fact.key: getattr(fact.value, fact.value.WhichOneof("value")) for fact in span.attributes},
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == 2,
                )
                for span in scope.spans
            ]
    return found


class Recorded(list[Seen]):
    """The spans that this process has recorded, once the context is left."""

    def named(self, name: str) -> Seen:
        """The one span with this name."""
        (found,) = [span for span in self if span.name == name]
        return found


@contextmanager
def recorded() -> Iterator[Recorded]:
    """Record the spans of this process; they are there when the context is left."""
    exporter, found = InMemorySpanExporter(), Recorded()
    recorder = OpenTelemetryRecorder("test", "test", exporter)
    record_with(recorder)
    try:
        yield found
    finally:
        record_with(None)
        recorder.close()
        found += seen(exporter.get_finished_spans())


def seen(spans: Sequence[ReadableSpan]) -> list[Seen]:
    """Spans as a collector gets them."""
    return [
        Seen(
            str(span.resource.attributes["service.name"]),
            span.name,
            f"{span.context.trace_id:032x}",
            f"{span.context.span_id:016x}",
            "" if span.parent is None else f"{span.parent.span_id:016x}",
            dict(span.attributes or {}),
            tuple((f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in span.links),
            span.start_time or 0,
            span.end_time or 0,
            not span.status.is_ok and span.status.is_unset is False,
        )
        for span in spans
    ]
