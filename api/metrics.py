"""What the API measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.programs.metrics import counter, seconds

if TYPE_CHECKING:
    from headwater.api.service import Service

NO_ROUTE: Final = "none"
"""In place of a path that no route has: whoever sends it chose it."""
METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"})
OTHER: Final = "other"
"""In place of another method, likewise."""
NO_ANSWER: Final = "none"
"""In place of a status, if the client left before it had one."""
REQUESTS: Final = counter("http_requests", "Requests that have ended.", ["method", "route", "status"])
REQUEST_SECONDS: Final = seconds("http_request_seconds", "From a request to the head of its answer.", ["route"])


class ServiceMetrics(Collector):
    """What the parts of a service do now."""

    def __init__(self, service: Service | None = None) -> None:
        """service: None: none is known, only the names of metrics are."""
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        followers = GaugeMetricFamily("headwater_followers", "Clients that follow the changes of a view.")
        awaited = GaugeMetricFamily("headwater_receipts_awaited", "Commands that wait for their receipts.")
        if self._service is not None:
            followers.add_metric([], self._service.feeds.followers)
            awaited.add_metric([], self._service.gateway.awaited)
        yield followers
        yield awaited
