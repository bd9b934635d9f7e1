"""`headwater handler` as several processes: a killed one is replaced, and all end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.compose.ports import free_port
from headwater.eventlog.settings import LogSettings
from tests.integration.commands.handler_process import (
    ended,
    handler,
    output,
    start_handler,
    stored_events,
    with_gateway,
)
from tests.support.listed import LISTING
from tests.support.submitted import submit
from tests.support.waiting import eventually

HANDLERS = 2
BOUND_S = 300.0
LISTINGS = [f"L{number}" for number in range(12)]


def workers(process: subprocess.Popen[bytes]) -> set[int]:
    """The processes that decide; beside them, the parent has one of multiprocessing's own."""
    return {child.pid for child in psutil.Process(process.pid).children() if decides(child)}


def decides(process: psutil.Process) -> bool:
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # also one that has just ended
        return False


async def list_all(gateway: CommandGateway) -> list[Receipt]:
    return [await submit(gateway, "listing.list_property", LISTING | {"listing_id": listing}) for listing in LISTINGS]


async def reprice_all(price: int, gateway: CommandGateway) -> list[Receipt]:
    body = {"price": price}
    return [await submit(gateway, "listing.change_price", body | {"listing_id": listing}) for listing in LISTINGS]


@pytest.mark.complete
def test_a_killed_handler_is_replaced_and_loses_nothing_and_all_end_together(log_settings: LogSettings) -> None:
    with handler(log_settings, HEADWATER_HANDLERS=str(HANDLERS)) as process:
        receipts = with_gateway(log_settings, list_all, BOUND_S)
        assert {receipt.outcome for receipt in receipts} == {"accepted"}
        # one may have answered all before the other has started; each has its own local state
        own = [f"handler/{log_settings.environment}/{number}" for number in range(HANDLERS)]
        eventually(lambda: all(each in output(log_settings) for each in own), "all handlers have started", BOUND_S)
        killed, other = first = workers(process)
        os.kill(killed, signal.SIGKILL)
        receipts = with_gateway(log_settings, partial(reprice_all, 7), BOUND_S)
        assert {(receipt.outcome, receipt.version) for receipt in receipts} == {("accepted", 2)}
        (new,) = eventually(lambda: workers(process) - first, "another handler is started", BOUND_S)
    assert not any(psutil.pid_exists(pid) for pid in (killed, other, new))
    assert {len(events) for events in stored_events(log_settings).values()} == {2}


@pytest.mark.complete
def test_handlers_end_when_nobody_watches_over_them(log_settings: LogSettings) -> None:
    with handler(log_settings, HEADWATER_HANDLERS=str(HANDLERS)) as process:
        with_gateway(log_settings, list_all, BOUND_S)
        left = workers(process)
        process.kill()
        process.wait()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in left), "the handlers have ended", BOUND_S)


def test_a_handler_that_waits_for_kafka_ends_as_soon_as_it_is_asked_to(tmp_path: Path) -> None:
    nowhere = LogSettings(bootstrap=f"127.0.0.1:{free_port()}", state=tmp_path, modules=("listings",))
    process = start_handler(nowhere)
    try:
        eventually(lambda: "Connection refused" in output(nowhere) or process.poll() is not None, "it looks for Kafka")
        process.terminate()
        assert ended(process) == 0, output(nowhere)
    finally:
        process.kill()
        process.wait()
    assert "stopped before it served" in output(nowhere)


def test_a_wrong_setting_ends_all_with_one_line() -> None:
    wrong = os.environ | {"HEADWATER_HANDLERS": "2", "HEADWATER_MODULES": "no.such.package"}
    ended = subprocess.run(
        [sys.executable, "-m", "headwater.commands"], env=wrong, capture_output=True, text=True, timeout=BOUND_S
    )
    assert ended.returncode == 1
    assert ended.stderr.count('there is no module "no.such.package"') == 1
    assert "Traceback" not in ended.stderr
    none = os.environ | {"HEADWATER_HANDLERS": "0", "HEADWATER_MODULES": "listings"}
    ended = subprocess.run(
        [sys.executable, "-m", "headwater.commands"], env=none, capture_output=True, text=True, timeout=BOUND_S
    )
    assert (ended.returncode, "HEADWATER_HANDLERS" in ended.stderr) == (1, True)
