"""When a worker is replaced and when all is given up; processes that do nothing stand for those that work."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from typing import Any

import pytest

from headwater.eventlog.programs import workers
from headwater.eventlog.programs.backoff import Backoff
from headwater.eventlog.programs.workers import Workers

HOPELESS = 2
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

        with monkeypatch.context() as patch:
            patch.setattr(workers, "SPAWN", Spawn)
            exit_code = Workers("worker", 1, print, (), end_s=1.0, hopeless=HOPELESS, backoff=QUICK).run()
        return exit_code, len(codes) - len(left)

    assert threading.current_thread() is threading.main_thread()  # signals are its own
    return run


def test_one_that_dies_is_replaced_until_a_stop_signal(run: Any) -> None:
    assert run(-9, 1, None) == (0, 3)


def test_one_that_dies_again_and_again_ends_all(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert run(-9, -9, -9, -9, None) == (1, 4)
    assert "4 times in a row" in caplog.text


def test_one_that_is_set_up_wrong_is_not_replaced(run: Any) -> None:
    assert run(HOPELESS, None) == (HOPELESS, 1)


def test_signals_are_as_they_were_afterwards(run: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_of_a_worker_is_logged_as_json_if_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        raise ZeroDivisionError(number)

    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    with pytest.raises(ZeroDivisionError):  # multiprocessing prints it, as text
        workers._call(fail, (1,))
    uncaught: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: uncaught.append(error))
    with pytest.raises(SystemExit, match=r"^1$"):
        workers._call(fail, (1,))
    assert [each.args for each in uncaught] == [(1,)]
