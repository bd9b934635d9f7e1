"""What a process measures, and the port on which Prometheus reads it.

Each package declares its own in `metrics.py`. They cost next to nothing unless they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Annotated, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.registry import Collector
from pydantic import Field

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Port, Variables

REGISTRY: Final = CollectorRegistry(auto_describe=True)
"""Of this process, with its processor time, memory and open files."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of durations."""
_NAMESPACE: Final = "headwater"

log = logging.getLogger(__name__)

disable_created_metrics()  # type: ignore[no-untyped-call] # a second series of each, which nobody reads
ProcessCollector(registry=REGISTRY)


class MetricsVariables(Variables):
    """Where processes serve their metrics; without a port, they do not."""

    metrics_host: Annotated[str, Field(min_length=1, description="an address of this machine")] = "127.0.0.1"
    metrics_port: Port | None = Field(None, description="a port number between 1 and 65535")


def counter(name: str, what: str, labels: Sequence[str] = ()) -> Counter:
    """A new metric that only grows, `headwater_<name>_total`; what: it counts, for `# HELP`."""
    return Counter(name, what, labels, namespace=_NAMESPACE, registry=REGISTRY)


def gauge(name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
    """A new metric that grows and falls, `headwater_<name>`."""
    return Gauge(name, what, labels, namespace=_NAMESPACE, registry=REGISTRY)


def seconds(name: str, what: str, labels: Sequence[str] = ()) -> Histogram:
    """A new distribution of durations, `headwater_<name>`, in seconds."""
    return Histogram(name, what, labels, namespace=_NAMESPACE, registry=REGISTRY, buckets=SECONDS)


@contextmanager
def collecting(*collectors: Collector) -> Iterator[None]:
    """A context in which the metrics of this process have those of the collectors."""
    with ExitStack() as registered:
        for collector in collectors:
            REGISTRY.register(collector)
            registered.callback(REGISTRY.unregister, collector)
        yield


INFO: Final = gauge("process_info", "1, with the version that this process runs.", ["process", "version"])


def note_process(process: str) -> None:
    """Say in the metrics which program this process is."""
    INFO.labels(process, version("headwater")).set(1)


def serve_metrics(env: Mapping[str, str], process: str, number: int = 0) -> int | None:
    """Serve the metrics of this process in a thread, if HEADWATER_METRICS_PORT is set; returns the port, else None.

    process: which program this is. number: of this process among those of the program, from 0; its port is the one
    that is set plus this number. Raises SettingError if it cannot listen there.
    """
    given = MetricsVariables.read(env)
    note_process(process)
    if given.metrics_port is None:
        return None
    port = given.metrics_port + number
    if port > 65535:
        needs = f"a port number of at most {65535 - number}, since each process has one of its own"
        raise SettingError("HEADWATER_METRICS_PORT", str(given.metrics_port), needs)
    try:
        start_http_server(port, given.metrics_host, REGISTRY)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        needs = f"a number so that port {port} of {given.metrics_host} is free for {process} ({reason})"
        raise SettingError("HEADWATER_METRICS_PORT", str(given.metrics_port), needs) from error
    log.info("metrics: http://%s:%d/metrics", given.metrics_host, port)
    return port
