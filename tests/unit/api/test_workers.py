"""When a worker is replaced and when all is given up; processes that do nothing stand for those that serve."""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

import pytest

from api import workers
from api.settings import CANNOT_START, ApiSettings
from api.workers import Workers, listen
from eventlog.errors import SettingError
from projections.supervision.process import Backoff

QUICK = Backoff(first_s=0.0, max_s=0.0, limit=3)


class FakeProcess:
    """Ends at once with `exitcode`, or runs until it is asked to end; `started` counts all of them."""

    def __init__(self, codes: list[int | None], name: str) -> None:
        self.name, self._codes = name, codes
        self._ours, self._theirs = socket.socketpair()
        self.exitcode: int | None = None
        self.sentinel = self._ours.fileno()

    def start(self) -> None:
        code = self._codes.pop(0)
        if code is None:
            signal.raise_signal(signal.SIGTERM)  # every worker runs: now the test is over
        else:
            self._die(code)

    def terminate(self) -> None:
        if self.exitcode is None:
            self.exitcode = -signal.SIGTERM
            self.close()

    def join(self, timeout: float | None = None) -> None:
        assert self.exitcode is not None

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def _die(self, code: int) -> None:
        self.exitcode = code
        self._theirs.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run with one worker whose processes end with these codes, None for one that runs on."""

    def run(*codes: int | None) -> tuple[int, int]:
        left = list(codes)

        class Spawn:
            Pipe = staticmethod(workers.SPAWN.Pipe)

            @staticmethod
            def Process(target: Any, args: Any, name: str) -> FakeProcess:  # noqa: N802 - as multiprocessing names it
                return FakeProcess(left, name)

        with socket.socket() as listening, monkeypatch.context() as patch:
            patch.setattr(workers, "SPAWN", Spawn)
            exit_code = Workers(ApiSettings(workers=1), listening, QUICK).run()
        return exit_code, len(codes) - len(left)

    assert threading.current_thread() is threading.main_thread()  # signals are its own
    return run


def test_one_that_dies_is_replaced_until_a_stop_signal(run: Any) -> None:
    assert run(-9, 1, None) == (0, 3)


def test_one_that_dies_again_and_again_ends_all(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert run(-9, -9, -9, -9, None) == (1, 4)
    assert "4 times in a row" in caplog.text


def test_one_that_is_set_up_wrong_is_not_replaced(run: Any) -> None:
    assert run(CANNOT_START, None) == (CANNOT_START, 1)


def test_signals_are_as_they_were_afterwards(run: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_address_that_is_taken_is_named() -> None:
    with listen(ApiSettings(port=0)) as taken, pytest.raises(SettingError, match="HEADWATER_API_PORT"):
        listen(ApiSettings(port=taken.getsockname()[1]))


def test_the_number_of_workers_is_a_setting() -> None:
    assert ApiSettings.from_environment({"HEADWATER_API_WORKERS": "3"}).workers == 3
    assert ApiSettings.from_environment({}).workers == 1
    with pytest.raises(SettingError, match="HEADWATER_API_WORKERS"):
        ApiSettings.from_environment({"HEADWATER_API_WORKERS": "0"})


def test_a_process_of_its_own_ends_with_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import api.serving

    monkeypatch.setattr(api.serving, "serve", lambda settings, listening: CANNOT_START)
    monkeypatch.setitem(os.environ, "HEADWATER_LOG_LEVEL", "INFO")
    with socket.socket() as listening, pytest.raises(SystemExit) as ended:
        workers.work(ApiSettings(), listening)
    assert ended.value.code == CANNOT_START
