"""The checker of histories complains about each kind of broken history, and about no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.commands.receipt import KEY_REUSED, WRONG_VERSION, Outcome, Receipt, ReceiptError, RecordedEvent
from headwater.eventlog.envelope import Position
from tests.simulation.history import Asked, Stored, complaints
from tests.simulation.tally import TOO_MANY

STREAM = "tally/T"


def receipt(command_id: str, outcome: Outcome, version: int, made: int = 0, code: str = "") -> Receipt:
    events = tuple(
        RecordedEvent(f"{STREAM}/{n}", "tally.added", Position(0, n)) for n in range(version - made + 1, version + 1)
    )
    error = ReceiptError(code, "m") if code else None
    return Receipt(command_id, "tally.add", STREAM, outcome, version, "f", "t", events, error)


def history() -> tuple[list[Asked], list[Stored]]:
    """Two accepted commands, a conflict, a rejection, one that was never answered, with a retry and a reuse."""
    asked = [
        Asked("a", STREAM, 2, 100, 0, sent=0.0),
        Asked("b", STREAM, 1, 100, None, sent=2.0),
        Asked("c", STREAM, 1, 100, 0, sent=2.0),
        Asked("d", STREAM, 9, 10, None, sent=4.0),
        Asked("e", STREAM, 2, 100, None, sent=4.0),
    ]
    answers = [
        receipt("a", "accepted", 2, 2),
        receipt("b", "accepted", 3, 1),
        receipt("c", "conflict", 2, code=WRONG_VERSION),
        receipt("d", "rejected", 3, code=TOO_MANY),
    ]
    for each, answer in zip(asked, answers, strict=False):
        each.take(answer, each.sent + 1.5)
    asked[0].take(answers[0], 9.0)
    asked[1].reuse = receipt("b", "failed", 3, code=KEY_REUSED)
    log = [Stored(STREAM, n, c, f"0:{n}") for n, c in ((1, "a"), (2, "a"), (3, "b"), (4, "e"), (5, "e"))]
    return asked, log


def test_a_good_history_is_not_complained_about() -> None:
    assert list(complaints(*history())) == []


def test_a_command_without_an_answer_may_have_had_no_effect() -> None:
    asked, log = history()
    assert list(complaints(asked, log[:3])) == []


def lost(asked: list[Asked], log: list[Stored]) -> None:
    del log[2:]


def twice(asked: list[Asked], log: list[Stored]) -> None:
    log += [Stored(STREAM, 6, "b", "0:6")]


def repeated(asked: list[Asked], log: list[Stored]) -> None:
    log.insert(3, Stored(STREAM, 3, "b", "0:9"))


def gap(asked: list[Asked], log: list[Stored]) -> None:
    log[3:] = [Stored(STREAM, 5, "e", "0:5"), Stored(STREAM, 6, "e", "0:6")]


def disorder(asked: list[Asked], log: list[Stored]) -> None:
    log[0], log[1] = log[1], log[0]


def half(asked: list[Asked], log: list[Stored]) -> None:
    del log[4]


def of_nobody(asked: list[Asked], log: list[Stored]) -> None:
    log.append(Stored(STREAM, 6, "x", "0:6"))


def elsewhere(asked: list[Asked], log: list[Stored]) -> None:
    log[2] = log[2]._replace(position="0:77")


def wrong_conflict(asked: list[Asked], log: list[Stored]) -> None:
    asked[2].answers = [receipt("c", "conflict", 0, code=WRONG_VERSION)]


def conflict_without_expectation(asked: list[Asked], log: list[Stored]) -> None:
    asked[2].expected = None


def outdated_conflict(asked: list[Asked], log: list[Stored]) -> None:
    asked[2].answers = [receipt("c", "conflict", 1, code=WRONG_VERSION)]


def conflict_from_the_future(asked: list[Asked], log: list[Stored]) -> None:
    asked[2].answers = [receipt("c", "conflict", 5, code=WRONG_VERSION)]
    asked[4].sent = 9.0


def conflict_with_what_never_was(asked: list[Asked], log: list[Stored]) -> None:
    asked[2].answers = [receipt("c", "conflict", 50, code=WRONG_VERSION)]


def rejected_with_an_event(asked: list[Asked], log: list[Stored]) -> None:
    log.extend(Stored(STREAM, n, "d", f"0:{n}") for n in range(6, 15))


def wrongly_rejected(asked: list[Asked], log: list[Stored]) -> None:
    asked[3].at_most = 100


def against_the_rule(asked: list[Asked], log: list[Stored]) -> None:
    asked[1].at_most = 2


def unexpected_version(asked: list[Asked], log: list[Stored]) -> None:
    asked[1].expected = 1


def another_answer(asked: list[Asked], log: list[Stored]) -> None:
    asked[0].answers.append(replace(asked[0].answers[0], version=3))


def reused(asked: list[Asked], log: list[Stored]) -> None:
    asked[1].reuse = asked[1].answers[0]


def failed(asked: list[Asked], log: list[Stored]) -> None:
    asked[3].answers = [receipt("d", "failed", 3, code="internal_error")]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lost, "acknowledged with"),
        (twice, "took effect twice"),
        (repeated, "each number belongs there once"),
        (gap, "each number belongs there once"),
        (disorder, "each number belongs there once"),
        (half, "1 of the 2 events of e"),
        (of_nobody, "nobody asked"),
        (elsewhere, "acknowledged with"),
        (wrong_conflict, "a conflict at version 0"),
        (conflict_without_expectation, "a conflict at version 2"),
        (outdated_conflict, "2 had been answered before"),
        (conflict_from_the_future, "asked for after its answer"),
        (conflict_with_what_never_was, "never had"),
        (rejected_with_an_event, "and yet the log holds"),
        (wrongly_rejected, "where the rule allows it"),
        (against_the_rule, "against the rule"),
        (unexpected_version, "1 was expected"),
        (another_answer, "another answer than the first"),
        (reused, "accepted for another command"),
        (failed, "nothing here should be"),
    ],
)
def test_a_broken_history_is_complained_about(
    damage: Callable[[list[Asked], list[Stored]], None], complaint: str
) -> None:
    asked, log = history()
    damage(asked, log)
    assert any(complaint in each for each in complaints(asked, log)), list(complaints(asked, log))
