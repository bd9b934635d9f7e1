"""What a test sees of work in its background that fails."""

from __future__ import annotations

import re
import threading

import pytest

from tests.support import background
from tests.support.background import EndedTooSoon, running, stacks
from tests.support.traffic import repeated
from tests.support.waiting import Latest, eventually


def fails(_: threading.Event) -> None:
    raise KeyError("the reason")


def ends(_: threading.Event) -> None:
    """Before it is told to."""


def fails_at_the_end(stop: threading.Event) -> None:
    stop.wait()
    raise KeyError("the reason")


def test_waiting_ends_at_once_with_the_error_of_what_has_failed() -> None:
    with pytest.raises(EndedTooSoon, match="fails has ended") as raised, running(threading.Event.wait, fails):
        eventually(lambda: False, "what only the background brings")
    assert isinstance(raised.value.__cause__, KeyError)


def test_waiting_ends_at_once_if_it_has_ended_without_an_error() -> None:
    with pytest.raises(EndedTooSoon, match="ends has ended"), running(ends):
        eventually(lambda: False, "what only the background brings")


def test_it_is_the_reason_if_something_else_fails_because_of_it() -> None:
    dead = threading.Event()

    def dies(_: threading.Event) -> None:
        dead.set()
        raise KeyError("the reason")

    with pytest.raises(EndedTooSoon) as raised, running(dies):
        dead.wait()
        assert eventually(lambda: all(span.name != dies.__qualname__ for span in threading.enumerate()))
    assert isinstance(raised.value.__cause__, KeyError)


def test_work_that_fails_while_it_ends_fails_the_test() -> None:
    with pytest.raises(KeyError, match="the reason"), running(fails_at_the_end):
        pass


def test_what_runs_to_the_end_of_its_block_is_fine_and_nothing_is_left_to_check() -> None:
    with running(threading.Event.wait):
        assert eventually(lambda: True)
    with pytest.raises(ValueError, match="of the block"), running(threading.Event.wait):
        raise ValueError("of the block")
    assert eventually(lambda: True)


def test_a_message_about_what_never_came_says_where_the_threads_are() -> None:
    def works_on(stop: threading.Event) -> None:
        stop.wait()

    says = r"the rows: not within 0\.01 s\n(.|\n)*works_on:\n(.|\n)*stop\.wait\(\)"
    with pytest.raises(AssertionError, match=says), running(works_on):
        eventually(lambda: "stop.wait()" in stacks())
        eventually(lambda: False, "the rows", 0.01)


def test_the_work_of_the_test_is_shown_first_and_idle_threads_of_libraries_last_with_one_line() -> None:
    """CI shows only the beginning of a long message."""
    ends = threading.Event()

    def older(stop: threading.Event) -> None:
        stop.wait()

    def newer(stop: threading.Event) -> None:
        stop.wait()

    def of_the_test() -> None:
        ends.wait()

    others = [threading.Thread(target=ends.wait, name="of a library"), threading.Thread(target=of_the_test, name="own")]

    def all_wait() -> bool:
        found = stacks()
        return found.count("stop.wait()") == 2 and "ends.wait()" in found and "of a library is in wait " in found

    with running(older, newer):
        for other in others:
            other.start()
        eventually(all_wait)
        shown = stacks()
    ends.set()
    for other in others:
        other.join()
    titles = [line for line in shown.splitlines() if line.startswith("thread ")]
    expected = [r".*newer:", r".*older:", r"own:", r"of a library is in wait \(threading\.py:\d+\)"]
    found = [pattern for title in titles for pattern in expected if re.fullmatch(f"thread {pattern}", title)]
    assert found == expected, shown


def test_work_that_does_not_end_fails_the_test_with_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "END_S", 0.01)
    ends = threading.Event()

    def goes_on(_: threading.Event) -> None:
        ends.wait()

    says = r"goes_on has not ended 0\.01 s after(.|\n)*ends\.wait\(\)"
    with pytest.raises(AssertionError, match=says), running(goes_on):
        eventually(lambda: "ends.wait()" in stacks())
    ends.set()


def test_traffic_goes_on_until_the_end_of_its_block_and_fails_it_if_it_fails() -> None:
    steps: list[int] = []
    with repeated(lambda: steps.append(1), 0.001):
        assert eventually(lambda: len(steps) > 3)
    assert all("repeated" not in span.name for span in threading.enumerate()), "its thread has ended"

    def breaks() -> None:
        raise KeyError("the reason")

    with pytest.raises(EndedTooSoon) as raised, repeated(breaks, 0.001):
        eventually(lambda: False, "what only the traffic brings")
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_message_says_what_is_there_when_the_wait_ends() -> None:
    found: list[str] = []
    with pytest.raises(AssertionError, match="so far came one: not within"):
        eventually(lambda: found.append("one"), Latest(lambda: f"so far came {found[0]}"), 0.0)
