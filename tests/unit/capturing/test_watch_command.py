"""`headwater sources watch` as a process: how it waits, and how it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headwater.compose.ports import free_port
from tests.integration.sources.watching import watching

pytestmark = pytest.mark.programs

VARIABLES = {
    "HEADWATER_MODULES": "shop",
    "HEADWATER_SHOP_DATABASE": "postgresql://shop_capture:secret@127.0.0.1:1/shop",
    "HEADWATER_SHOP_SALT": "salt",
}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_without_kafka_connect_it_waits_until_it_is_stopped(how: signal.Signals, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with watching({**VARIABLES, "HEADWATER_CONNECT": url}, tmp_path / "log") as watch:
        watch.wait_for(f'Kafka Connect does not answer at "{url}"')
        watch.end(how)
    assert len(watch.lines("does not answer")) == 1
    assert not watch.lines("secret")


def test_a_setting_that_is_missing_ends_it_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match='environment variable "HEADWATER_SHOP_DATABASE" is not set'):  # noqa: SIM117
        with watching({**VARIABLES, "HEADWATER_SHOP_DATABASE": ""}, tmp_path / "log"):
            pass
