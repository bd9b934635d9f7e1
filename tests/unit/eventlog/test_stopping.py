"""Programs that are asked to stop: what takes long is broken off, what is cleaned up is not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from headwater.eventlog.programs.stopping import Stopping
from tests.support.waiting import BOUND_S


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_in_the_middle_of_a_wait_is_not_lost_and_does_not_wait_for_it() -> None:
    stop = Stopping.by_signals()
    lock: threading.Condition = vars(stop)["_cond"]
    with lock:  # as `wait` has it for a moment, before and after it waits
        signal.raise_signal(signal.SIGTERM)
    assert stop.wait(BOUND_S)


def test_a_signal_while_a_thread_is_started_is_not_lost_and_does_not_wait_for_it() -> None:
    stop = Stopping.by_signals()
    with vars(threading)["_active_limbo_lock"]:  # as `Thread.start` has it for a moment
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()


def test_a_signal_that_another_thread_gets_wakes_a_program_that_waits() -> None:
    """The kernel does not give it to the main thread while a debugger or a profiler holds that."""
    stop = Stopping.by_signals()

    def signal_itself() -> None:
        time.sleep(0.1)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=signal_itself)
    thread.start()
    assert stop.wait()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_it_and_interrupts_nothing_else(number: signal.Signals) -> None:
    stop = Stopping.by_signals()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()


def test_long_work_is_broken_off_once() -> None:
    stop, cleaned = Stopping.by_signals(), False
    with pytest.raises(KeyboardInterrupt), stop.interrupting():
        try:
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("it goes on")
        finally:
            signal.raise_signal(signal.SIGTERM)  # somebody is impatient
            cleaned = True
    assert cleaned and stop.is_set()
    signal.raise_signal(signal.SIGTERM)


def test_long_work_does_not_begin_once_it_is_set() -> None:
    stop = Stopping.by_signals()
    stop.set()
    with pytest.raises(KeyboardInterrupt), stop.interrupting():
        pytest.fail("it begins")
