"""What py4j logs of calls to the JVM that a stop has interrupted: nothing; and of others, everything."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator

import pytest

from headwater.projections.spark import session


def interruption() -> None:
    raise KeyboardInterrupt


def end_of_an_interrupted_call() -> None:
    try:
        interruption()
    except KeyboardInterrupt:
        raise BrokenPipeError from None  # py4j's has the interruption as its context only


def cancelled_job() -> None:
    raise RuntimeError("[SPARK_JOB_CANCELLED] Job 3 cancelled")


def defect() -> None:
    raise BrokenPipeError


@pytest.mark.parametrize("name", [None, "py4j.clientserver"])
@pytest.mark.parametrize(
    ("fail", "logged"),
    [(interruption, False), (end_of_an_interrupted_call, False), (cancelled_job, False), (defect, True)],
)
def test_only_what_no_stop_has_interrupted_is_logged(
    name: str | None, fail: Callable[[], None], logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert session.INTERRUPTED, "the module filters as soon as it is imported"
    try:
        fail()
    except BaseException:
        logging.getLogger(name).exception("while sending command")
    assert bool(caplog.records) == logged


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What runs in the background of a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_waits_for_the_end_of_a_call() -> None:
    ended = False
    with pytest.raises(KeyboardInterrupt), session.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        ended = True
    assert ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
