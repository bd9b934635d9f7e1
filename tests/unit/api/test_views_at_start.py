"""A process is not ready before its views can be read with `after=`; one view keeps it from that for a while only."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest

from headwater.api.app import create_app
from headwater.api.routes.health import HOLD_S, READY, ViewsAtStart
from headwater.eventlog.envelope import Position
from headwater.eventlog.personal.installed import install, uninstall
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.vault import Vault
from headwater.projections.errors import StoreUnavailable
from headwater.samples.orders.views import large_order_lines
from tests.support.key_records import Records
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, catch_up, event, fake_service


class Start:
    """A process that has just started; `now` is the time of its clock."""

    def __init__(self, service: FakeService) -> None:
        self.service, self.now = service, 1_000.0
        self.views = ViewsAtStart(service, lambda: self.now)

    def state(self) -> str:
        return asyncio.run(self.views.state())


@pytest.fixture
def start(service: FakeService) -> Start:
    catch_up(service)
    return Start(service)


def test_nothing_is_ready_before_the_first_view_is_built(start: Start) -> None:
    start.service.generations.missing = set(start.service.views)
    for start.now in (1_000.0, 1_000.0 + 100 * HOLD_S):
        assert start.state() == "no view is built yet: start `headwater projections`"
    start.service.generations.missing = set()
    assert start.state() == READY


def test_a_view_that_is_not_built_is_named(start: Start) -> None:
    start.service.generations.missing = {"listings", "streams"}
    assert start.state() == "not built yet: listings, streams"
    start.service.generations.missing = set()
    assert start.state() == READY


def test_a_view_that_has_not_applied_what_the_log_has_is_named(start: Start) -> None:
    for reader in start.service.readers.values():
        reader.applied = {}
    assert start.state().endswith("events behind")
    # what comes later is a matter of the requests that read it
    start.service.events.events[Position(2, 101)] = event("listing/L1", 2, "listing.withdrawn", listing_id="L1")
    for reader in start.service.readers.values():
        reader.applied = {partition: {"2": 100} for partition in range(4)}
    assert start.state() == READY


def test_the_end_of_a_transaction_is_no_event(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(_: object) -> dict[str, int]:
        return {"2": 102}

    monkeypatch.setattr(start.service.events, "ends", ends)
    for reader in start.service.readers.values():
        reader.applied = {partition: {"2": 100} for partition in range(4)}
    assert start.state() == READY


def test_an_empty_log_says_nothing_about_views(start: Start) -> None:
    start.service.events.events.clear()
    assert start.state() == "the log is empty: start `headwater handler`"
    catch_up(start.service)
    assert start.state() == READY


def test_stream_views_have_nothing_to_apply_before_the_first_event(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(_: object) -> dict[str, int]:
        return {"0": 7, "1": 0}

    monkeypatch.setattr(service.events, "ends", ends)  # heartbeats
    of_streams = replace(service, views={"large_order_lines": large_order_lines})
    of_tables = replace(service, views={"listings": service.views["listings"]})
    assert Start(of_streams).state() == READY
    assert Start(of_tables).state() == 'view "listings" is 7 events behind', "its query runs, and applies heartbeats"
    service.events.events[Position(0, 5)] = event("listing/L1", 1, "listing.withdrawn", listing_id="L1")
    assert Start(of_streams).state() == 'view "large_order_lines" is 7 events behind'


def test_a_paused_view_that_is_behind_keeps_no_process_from_being_ready(start: Start) -> None:
    catch_up(start.service)
    start.service.readers["postgres"].applied = {}
    assert start.state() != READY
    start.service.generations.paused = dict.fromkeys(start.service.views, datetime(2026, 1, 2, tzinfo=UTC))
    assert start.state() == READY


@pytest.mark.parametrize("what", ["not built", "behind", "unavailable"])
def test_one_view_keeps_a_process_for_a_while_only(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    store = start.service.readers["postgres"]
    if what == "not built":
        start.service.generations.missing = {"listings"}
    elif what == "behind":
        store.applied = {}
    else:
        monkeypatch.setattr(store, "ledger", unavailable)
    for start.now in (1_000.0, 1_000.0 + HOLD_S - 1):
        if what == "unavailable":
            with pytest.raises(StoreUnavailable):
                start.state()
        else:
            assert start.state() != READY
    start.now = 1_000.0 + HOLD_S
    assert start.state() == READY
    assert "listings" in caplog.text


async def unavailable(*_: object) -> dict[int, dict[str, int]]:
    raise StoreUnavailable("PostgreSQL", "refused")


def test_once_ready_a_process_stays_so_although_views_fall_behind(start: Start) -> None:
    assert start.state() == READY
    start.service.generations.missing = {"listings"}
    for reader in start.service.readers.values():
        reader.applied = {}
    assert start.state() == READY


def test_readiness_says_what_views_lack(service: FakeService) -> None:
    client = AppClient(create_app(replace(service)))
    service.generations.missing = set(service.views)
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["parts"]["views"].startswith("no view is built yet")


def test_a_view_over_another_one_keeps_nobody_waiting() -> None:
    service = fake_service(modules=("listings", "tests.integration.replay.followed"))
    catch_up(service)
    assert Start(service).state() == READY


PERSONAL = ("tests.support.personal_customers",)


def ready_with(keys: MemoryKeys) -> httpx.Response:
    """The answer of a process about its readiness, whose store of keys is this one."""
    service = fake_service(modules=PERSONAL)
    catch_up(service)
    vault = Vault(keys)
    install(vault)
    try:
        return AppClient(create_app(service)).get("/health/ready")
    finally:
        uninstall(vault)


def test_a_process_with_the_wrong_store_of_keys_is_not_ready_and_says_what_to_do() -> None:
    records = Records()
    right = MemoryKeys(records)
    assert ready_with(right).json()["parts"]["keys"] == READY
    for wrong in (MemoryKeys(records), MemoryKeys(records)):
        answer = ready_with(wrong)
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
        assert f"notes the store {right.store_id}: correct HEADWATER_KEYS" in answer.json()["parts"]["keys"]
    assert ready_with(right).status_code == 200


def test_a_store_of_keys_that_is_away_is_a_matter_of_requests_that_need_it() -> None:
    keys = MemoryKeys()
    keys.is_away = True
    assert ready_with(keys).status_code == 200


def test_nobody_asks_for_keys_where_nothing_is_personal(service: FakeService) -> None:
    catch_up(service)
    assert "keys" not in AppClient(create_app(service)).get("/health/ready").json()["parts"]
