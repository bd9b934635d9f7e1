"""Whether a process records spans: if OpenTelemetry's variables name a collector. Else none of it is imported."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from headwater.eventlog.programs.logs import process_name
from headwater.eventlog.tracing.spans import record_with

if TYPE_CHECKING:
    from headwater.eventlog.tracing.recording import OpenTelemetryRecorder

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
LIBRARIES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
FLUSH_S: Final = 3.0
"""How long the end of a process waits for its last spans to be sent."""

log = logging.getLogger(__name__)


def is_configured(env: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables say that traces are sent."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {each.strip() for each in (env.get("OTEL_TRACES_EXPORTER") or "otlp").split(",")}
    return "otlp" in exporters and any(env.get(each, "").strip() for each in ENDPOINTS)


@contextmanager
def traced(env: Mapping[str, str], environment: str, process: str = "") -> Iterator[None]:
    """A context in which this process records spans, if that is configured; at its end the last ones are sent.

    environment: of the deployment. process: which program this is; empty: as its log calls it. OpenTelemetry reads its
    variables from the environment of this process. What is wrong with them is a warning, because traces stop nothing.
    """
    recorder = _recorder(env, environment, process or process_name()) if is_configured(env) else None
    if recorder is None:
        yield
        return
    record_with(recorder)
    try:
        yield
    finally:
        record_with(None)
        _flush(recorder)


def _recorder(env: Mapping[str, str], environment: str, process: str) -> OpenTelemetryRecorder | None:
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


def _flush(recorder: OpenTelemetryRecorder) -> None:
    """Send what has ended, for at most FLUSH_S: a thread that still sends then ends with the process."""
    ending = threading.Thread(target=recorder.close, name="traces", daemon=True)
    ending.start()
    ending.join(FLUSH_S)
    if ending.is_alive():
        log.warning("the last traces are lost: the collector did not take them within %g s", FLUSH_S)
