"""Records spans with OpenTelemetry, and sends them to a collector by OTLP over HTTP, in a thread of its own.

Its queue is bounded: while no collector takes spans, the oldest are dropped, and nobody waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OpenTelemetrySpan

from headwater.eventlog.tracing.spans import NO_FACTS, Facts, Kind, Span

NAME = "headwater"
KINDS = {kind.name.lower(): kind for kind in SpanKind}

log = logging.getLogger(__name__)


class OpenTelemetryRecorder:
    """Makes spans, and sends them in the background, as OpenTelemetry's variables say."""

    def __init__(self, environment: str, process: str, exporter: SpanExporter | None = None) -> None:
        """environment: of the deployment. process: which program this is. exporter: None: by OTLP."""
        ours = {
            "service.name": f"{NAME}-{process}",
            "service.namespace": environment,
            "service.version": version(NAME),
            f"{NAME}.process": process,
        }
        resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
        self._ids, self._nothing = _Ids(), Context()
        self._processor = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call]
        asking = TracerProvider(None, resource, False, self._processor, self._ids)
        # the sampler is asked before a new trace is begun: a span that it drops costs several times as much
        always = TracerProvider(ALWAYS_ON, resource, False, self._processor, self._ids)
        self._sampler = asking.sampler
        self._asking, self._always = asking.get_tracer(NAME), always.get_tracer(NAME)
        self._processor.add_span_processor(BatchSpanProcessor(Reporting(exporter or OTLPSpanExporter())))

    def child(
        self, name: str, traceparent: str, kind: Kind, facts: Facts, began_ns: int | None, span_id: int | None
    ) -> Span | None:
        """A span of the trace that this context continues; None if the sampler drops it."""
        below = set_span_in_context(NonRecordingSpan(_place(traceparent)), self._nothing)
        with self._ids.next(span_id=span_id):
            span = self._asking.start_span(name, below, KINDS[kind], facts, start_time=began_ns)
        return _Recorded(span) if span.is_recording() else None

    def root(
        self,
        name: str,
        kind: Kind,
        facts: Facts,
        links: Sequence[str],
        began_ns: int | None,
        *,
        always: bool,
        context: str | None = None,
    ) -> Span | None:
        """The first span of a new trace; None if the sampler drops it.

        always: the sampler is not asked. context: with the ids of the trace and the span; None: new ones.
        """
        place = None if context is None else _place(context)
        trace_id = self._ids.generate_trace_id() if place is None else place.trace_id
        if not always and not self._keeps(name, trace_id):
            return None
        leading = [Link(_place(link)) for link in links]
        with self._ids.next(trace_id=trace_id, span_id=None if place is None else place.span_id):
            return _Recorded(
                self._always.start_span(name, self._nothing, KINDS[kind], facts, leading, start_time=began_ns)
            )

    def samples(self, name: str, context: str) -> bool:
        """Whether the sampler records a trace with this id that begins with a span of this name."""
        return self._keeps(name, _place(context).trace_id)

    def _keeps(self, name: str, trace_id: int) -> bool:
        return self._sampler.should_sample(self._nothing, trace_id, name).decision is not Decision.DROP

    def close(self) -> None:
        """Send what has ended, and then nothing more."""
        self._processor.shutdown()


class _Ids(RandomIdGenerator):
    """Random ids, except where one is known before its span is made."""

    def __init__(self) -> None:
        self._chosen = _Chosen()

    def next(self, *, trace_id: int | None = None, span_id: int | None = None) -> _Chosen:
        """While this is open, spans that this thread begins have these ids."""
        self._chosen.trace_id, self._chosen.span_id = trace_id, span_id
        return self._chosen

    def generate_trace_id(self) -> int:
        return self._chosen.trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self._chosen.span_id or super().generate_span_id()


class _Chosen(threading.local):
    trace_id: int | None = None
    span_id: int | None = None

    def __enter__(self) -> None:
        """Nothing to do: it is set already."""

    def __exit__(self, *_: object) -> None:
        self.trace_id = self.span_id = None


class _Recorded:
    """A Span; see there."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: OpenTelemetrySpan) -> None:
        context, self._span = span.get_span_context(), span
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def note(self, facts: Facts, *, error: str = "") -> None:
        self._span.set_attributes(facts)
        if error:
            self._span.set_status(StatusCode.ERROR, error)

    def link(self, traceparent: str) -> None:
        self._span.add_link(_place(traceparent))

    def end(self, facts: Facts = NO_FACTS, *, name: str = "", error: str = "", at_ns: int | None = None) -> None:
        if not self._span.is_recording():
            return
        if facts or error:
            self.note(facts, error=error)
        if name:
            self._span.update_name(name)
        self._span.end(at_ns)


def _place(traceparent: str) -> SpanContext:
    """The place that a valid W3C trace context names."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


class Reporting(SpanExporter):
    """Sends spans, and warns once when they begin not to arrive, instead of once for each attempt."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._fails, self._reasons = exporter, False, _Reasons()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._reasons)
        logger.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS and self._fails:
            log.info("traces are sent again")
        elif result is not SpanExportResult.SUCCESS and not self._fails:
            log.warning("traces cannot be sent, and are dropped until they can: %s", self._reasons.last)
        self._fails = result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
        logger = logging.getLogger("opentelemetry")
        logger.removeHandler(self._reasons)
        # one that still tries to send its last spans may end after another one has begun
        logger.propagate = not any(isinstance(handler, _Reasons) for handler in logger.handlers)


class _Reasons(logging.Handler):
    """Keeps the last message of OpenTelemetry's own log."""

    last = "no reason is known"

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()
