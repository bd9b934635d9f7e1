"""Spans of traces: what a process did for one request or record, and when.

Nothing is recorded, and nothing of OpenTelemetry is imported, unless its variables name a collector; and nothing for a
record whose trace is not sampled: a call then costs a comparison. Facts never have values of fields, keys of rows, or
messages of errors.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, Protocol

from headwater.eventlog.programs.logs import process_name

if TYPE_CHECKING:
    from headwater.eventlog.tracing.recording import OpenTelemetryRecorder

Kind = Literal["server", "producer", "consumer", "internal"]
Facts = Mapping[str, str | int]
NO_FACTS: Final[Facts] = {}
MS: Final = 1_000_000
"""Nanoseconds of a millisecond: times of spans are in nanoseconds."""

TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A W3C trace context: version, trace, span, flags."""
SAMPLED: Final = "13579bdf"
"""Last digits of flags that say that the trace is sampled."""

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
LIBRARIES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
FLUSH_S: Final = 3.0
"""How long the end of a process waits for its last spans to be sent."""

log = logging.getLogger(__name__)


class Span(Protocol):
    """One span, until it ends; it is sent only then."""

    @property
    def traceparent(self) -> str:
        """Its W3C trace context, for what follows from it."""

    def note(self, facts: Facts, *, error: str = "") -> None:
        """Say more about it, before it ends; error: the kind of failure, if it failed."""

    def link(self, traceparent: str) -> None:
        """Lead to another span, which is not its parent."""

    def end(self, facts: Facts = NO_FACTS, *, name: str = "", error: str = "", at_ns: int | None = None) -> None:
        """End it; the first call counts.

        name: what it is called, if that is known only now. error: the kind of failure, if it failed.
        at_ns: since 1970; None: now.
        """


_recorder: OpenTelemetryRecorder | None = None


def record_with(recorder: OpenTelemetryRecorder | None) -> None:
    """Record the spans of this process with this recorder; None: record none."""
    global _recorder  # noqa: PLW0603 - like the metrics and the log, it is one per process
    _recorder = recorder


def is_on() -> bool:
    """Whether this process records spans."""
    return _recorder is not None


def is_sampled(traceparent: str) -> bool:
    """Whether a W3C trace context says that its trace is recorded."""
    return traceparent[-1:] in SAMPLED and TRACEPARENT.fullmatch(traceparent) is not None


def continued(
    name: str,
    traceparent: str | None,
    kind: Kind = "internal",
    facts: Facts = NO_FACTS,
    *,
    began_ns: int | None = None,
    span_id: int | None = None,
) -> Span | None:
    """A span for a record with this trace context; None if it is not sampled, or nothing is recorded.

    began_ns: since 1970; None: now. span_id: see `span_of`; None: a new one.
    """
    if _recorder is None or traceparent is None or not is_sampled(traceparent):
        return None
    return _recorder.child(name, traceparent, kind, facts, began_ns, span_id)


def received(name: str, traceparent: str | None, facts: Facts = NO_FACTS) -> Span | None:
    """The span of a request; without a trace context of its caller, the sampler decides whether a trace begins."""
    if _recorder is None:
        return None
    if traceparent is None:
        return _recorder.root(name, "server", facts, (), None, always=False)
    return _recorder.child(name, traceparent, "server", facts, None, None)


def begun(
    name: str, kind: Kind, facts: Facts = NO_FACTS, links: Sequence[str] = (), *, always: bool = False
) -> Span | None:
    """The first span of a new trace, if the sampler says so. links: contexts of spans that led to it.

    always: the sampler is not asked, because what led to it is sampled.
    """
    if _recorder is None:
        return None
    return _recorder.root(name, kind, facts, links, None, always=always)


def origin_of(name: str, *what: str) -> str | None:
    """The context in which all processes record what follows from something that has no trace context.

    None if the sampler drops it; all processes whose samplers decide by the id of the trace decide alike. name: of the
    first span. what: names the origin.
    """
    if _recorder is None:
        return None
    ids = blake2b("\n".join(what).encode(errors="surrogateescape"), digest_size=24).hexdigest()
    context = f"00-{ids[:32]}-{ids[32:]}-01"
    return context if _recorder.samples(name, context) else None


def first(name: str, context: str, kind: Kind, facts: Facts = NO_FACTS, *, began_ns: int | None = None) -> Span | None:
    """A span without a parent, with the ids of this context, which comes from `origin_of`."""
    if _recorder is None:
        return None
    return _recorder.root(name, kind, facts, (), began_ns, always=True, context=context)


def end_together(name: str, members: Collection[Span], began_ns: int, ended_ns: int, facts: Facts) -> None:
    """End spans of several traces that one batch has in common; it has a trace of its own, and they link to each other.

    name, facts: of the batch's span.
    """
    if _recorder is None or not members:
        return
    links = [member.traceparent for member in members]
    batch = _recorder.root(name, "internal", facts, links, began_ns, always=True)
    for member in members:
        if batch is not None:
            member.link(batch.traceparent)
        member.end(at_ns=ended_ns)
    if batch is not None:
        batch.end(at_ns=ended_ns)


def span_of(traceparent: str, *what: str) -> tuple[int, str]:
    """A span id that every process computes alike, and its context in the trace of `traceparent`. what: names it."""
    number = int.from_bytes(blake2b("\n".join((traceparent, *what)).encode(), digest_size=8).digest()) or 1
    return number, f"{traceparent[:36]}{number:016x}{traceparent[52:]}"


def origin_of_change(source: str, offset: int) -> str | None:
    """The context of a change of a captured row; None if that is not sampled.

    source: such as `cdc.shop.public.customers/0`.
    """
    return origin_of("change", "change", source, str(offset))


def origin_of_batch(tag: str, number: int) -> str | None:
    """The context of the span of a batch of a stream view; None if that is not sampled. tag: of the generation."""
    return origin_of("batch", "batch", tag, str(number))


def is_configured(env: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables say that traces are sent."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {exporter.strip() for exporter in (env.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")}
    return "otlp" in exporters and any(env.get(endpoint, "").strip() for endpoint in ENDPOINTS)


@contextmanager
def traced(env: Mapping[str, str], environment: str, process: str = "") -> Iterator[None]:
    """A context in which this process records spans, if that is configured; at its end the last ones are sent.

    environment: of the deployment. process: which program this is; empty: as its log calls it. OpenTelemetry reads its
    variables from the environment of this process. What is wrong with them is a warning, because traces stop nothing.
    """
    recorder = _new_recorder(env, environment, process or process_name()) if is_configured(env) else None
    if recorder is None:
        yield
        return
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        # a thread that still sends what has ended after FLUSH_S ends with the process
        ending = threading.Thread(target=recorder.close, name="traces", daemon=True)
        ending.start()
        ending.join(FLUSH_S)
        if ending.is_alive():
            log.warning("the last traces are lost: the collector did not take them within %g s", FLUSH_S)


def _new_recorder(env: Mapping[str, str], environment: str, process: str) -> OpenTelemetryRecorder | None:
    """What records and sends spans; None, after a warning, if it cannot be made."""
    if not all(map(_is_installed, LIBRARIES)):
        log.warning("no traces are sent: run pip install 'headwater[traces]' in this environment")
        return None
    given = next((name for name in PROTOCOLS if env.get(name)), None)
    if given is not None and env[given] != PROTOCOL:
        log.warning('no traces are sent: "%s" is "%s", but only %s is supported', given, env[given], PROTOCOL)
        return None
    try:
        from headwater.eventlog.tracing.recording import OpenTelemetryRecorder  # noqa: PLC0415 - takes 0.7 s

        recorder = OpenTelemetryRecorder(environment, process)
    except Exception as error:
        log.warning("no traces are sent: OpenTelemetry cannot be started", exc_info=error)
        return None
    log.info("traces are sent by OTLP, as OpenTelemetry's variables say")
    return recorder


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package that would contain it is missing
        return False
