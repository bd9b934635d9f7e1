"""What a test sees in `caplog`: what it logs itself, also in its own threads, and nothing of earlier tests' threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def left_behind() -> Iterator[threading.Event]:
    """Lets a thread log that began before the test."""
    logs, stop = threading.Event(), threading.Event()

    def goes_on() -> None:
        while not stop.is_set():
            logs.wait()
            logging.getLogger("another").error("a server that has ended does not answer")
            logs.clear()

    thread = threading.Thread(target=goes_on)
    thread.start()
    yield logs
    stop.set()
    logs.set()
    thread.join()


def test_logs_of_earlier_threads_are_left_out(left_behind: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    own = threading.Thread(target=logging.getLogger("own").error, args=["in a thread of the test"])
    left_behind.set()
    while left_behind.is_set():
        pass
    own.start()
    own.join()
    logging.getLogger("own").error("in the test")
    assert caplog.messages == ["in a thread of the test", "in the test"]
