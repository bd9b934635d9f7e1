"""What `make demo` does once everything runs: send the commands of a sample, check, rebuild under traffic, verify.

It runs after the other tests of the folder, so that every event that they wrote is verified, too.
"""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from headwater.compose.samples.sample import IDLE_S, Client, Deployment
from headwater.compose.settings import StackSettings
from tests.acceptance.conftest import Service, must_wait_on
from tests.demo import Report, play
from tests.samples.orders import ORDERS, CheckedOrders
from tests.support.waiting import BOUND_S


class Patient(httpx.AsyncHTTPTransport):
    """Repeats a request until the view has what it waits for."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = time.monotonic() + BOUND_S
        while must_wait_on(request, answer := await super().handle_async_request(request)):
            if time.monotonic() > deadline:
                break
            await answer.aread()
        return answer


PAUSE_S = 0.2


class FewMeasured(CheckedOrders):
    """The orders of the demo, with few measurements of how fresh rows are, and pauses between those that are traded.

    On a busy machine a rebuild would take as long as traffic takes the processors from it, and have more to read.
    """

    measured = 5

    async def trade(self, client: Client, number: int) -> None:
        await super().trade(client, number)
        await asyncio.sleep(PAUSE_S)


CHANGED = "headwater.samples.orders.domain,reserved_stock"
"""The modules of table views that the demo changes: they are rebuilt without Spark."""


@pytest.mark.complete
def test_all_orders_are_right_before_and_after_a_rebuild_under_traffic(service: Service, stack: StackSettings) -> None:
    variables = {**service.environment, "HEADWATER_MODULES": CHANGED}

    async def demo() -> Report:
        transport = Patient(limits=httpx.Limits(keepalive_expiry=IDLE_S))
        async with httpx.AsyncClient(base_url=service.api, timeout=600.0, trust_env=False, transport=transport) as http:
            return await play(Client(http), {"orders": FewMeasured()}, Deployment(stack.endpoints, variables))

    report = asyncio.run(demo())
    assert report.mismatches == []
    summary = report.summary()
    assert (summary["orders"], len(report.freshness_ms)) == (ORDERS, FewMeasured.measured)
    assert summary["commands"] > ORDERS + FewMeasured.measured + report.commands_during_rebuild
    assert min(summary["commands_during_rebuild"], summary["rebuild_events_per_s"]) > 0
    assert summary["verified_rows"] > ORDERS


@pytest.mark.complete
def test_all_views_of_the_service_are_those_of_a_rebuild(service: Service) -> None:
    service.deployment.rebuild()
    views = service.deployment.verify()["views"]
    rows = {view["view"]: sum(store["rows"] for store in view["stores"]) for view in views}
    assert min(rows["baskets"], rows["product_demand"], rows["streams"]) > 0, rows
