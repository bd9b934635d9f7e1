"""A stack that is started in the background: what an interruption of the start leaves."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from headwater.compose import cli, detached
from headwater.compose.settings import StackSettings
from headwater.compose.state import StateDirectory


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(0)])
def test_an_interrupted_start_leaves_no_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interruption: BaseException
) -> None:
    supervisor, found = tmp_path / "supervisor", []
    supervisor.write_text("#!/bin/sh\nexec sleep 600\n")
    supervisor.chmod(0o755)

    def is_healthy(_: StateDirectory, owner: int) -> bool:
        found.append(psutil.Process(owner))
        raise interruption

    monkeypatch.setattr(sys, "executable", str(supervisor))
    monkeypatch.setattr(detached, "_is_healthy", is_healthy)
    with pytest.raises(type(interruption)):
        detached.start(StackSettings(tmp_path))
    assert not found[0].is_running()


def test_a_signal_ends_the_start_as_ctrl_c_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: StackSettings) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal did not interrupt the start")

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path))
    monkeypatch.setattr(detached, "start", start)
    monkeypatch.setattr(cli, "fetch_jars", lambda _: None)
    try:
        with pytest.raises(SystemExit):
            cli.up(detach=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
