"""Dead letters that are retried: which views are rebuilt, and what becomes of those that still fail."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import DEAD_LETTERS
from headwater.projections.errors import RefusedPatch
from headwater.projections.registry import ViewRegistry
from headwater.replay import dead_letters
from headwater.replay.dead_letters import _concerned
from headwater.replay.errors import CannotRetry, NothingToRetry
from headwater.samples.listings.views import listing_card
from tests.support.observed import gate_view
from tests.unit.projections.kept_letters import KeptLetters
from tests.unit.replay.played import Stage, generation

VIEWS = ViewRegistry([("here", gate_view()), ("here", gate_view(name="doors")), ("there", listing_card)])


@pytest.mark.parametrize(
    ("key", "record_key", "names"),
    [
        ("patches/postgres/gates@1.g12/batch/7/a/12:00", b"a/12:00", ["gates"]),
        ("patches/postgres/listing_card@1/0/5/0", b"L1", ["listing_card"]),
        ("patches/0/17", b"doors@1.g1/a/12:00", ["doors"]),
        ("patches/0/17", b"nobody@1/a", ["gates", "doors", "listing_card"]),
        ("events/0/17", b"listing/L1/1", ["listing_card"]),
    ],
)
def test_the_views_of_a_letter(key: str, record_key: bytes, names: list[str]) -> None:
    deployment: Any = SimpleNamespace(views=VIEWS)
    letter: Any = SimpleNamespace(key=record_key, value=b"no event")
    assert [view.name for view in _concerned(deployment, key, letter)] == names


class Written(KeptLetters):
    """Dead letters in the log of a stage. removed: their keys, in order."""

    removed: ClassVar[list[str]] = []

    def __init__(self, _: object) -> None:
        super().__init__()

    def put(self, key: str, letter: bytes | None) -> None:
        assert letter is None
        self.removed.append(key)

    def flush(self) -> None: ...


class Sending:
    """A Resender to which records with the value `bad` cannot be sent."""

    def __init__(self, *_: object) -> None: ...

    def resend(self, key: str, letter: Letter) -> None:
        if letter.value == b"bad":
            raise CannotRetry(key, "it is still not a valid command")
        if letter.value == b"done":
            raise NothingToRetry(key, '"p/O" has handled it since, or has ended')


@pytest.fixture
def letters(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of dead letters, some of which can be retried; those that were."""
    for key, value in (
        ("process-inbox/0/1", b"bad"),
        ("patches/postgres/listings@1/0/5/0", b"{}"),
        ("patches/postgres/listing_card@1/0/5/0", b"{}"),
        ("patches/postgres/streams@1/0/5/0", b"{}"),
        ("process-inbox/0/2", b"good"),
    ):
        letter = Letter("refused", "2026-01-02T03:04:05Z", b"a", value).to_json(topic="t")
        stage.log.submit(Entry(DEAD_LETTERS, key, letter, 0), 0).result()
    Written.removed.clear()
    monkeypatch.setattr(dead_letters, "DeadLetters", Written)
    monkeypatch.setattr(dead_letters, "Resender", Sending)
    stage.failing["listings"] = RefusedPatch("listings", "postgres", "a", "0:5", "out of range")
    return Written.removed


RETRIED = ["patches/postgres/listing_card@1/0/5/0", "patches/postgres/streams@1/0/5/0", "process-inbox/0/2"]
FAILED = ["process-inbox/0/1", "patches/postgres/listings@1/0/5/0"]


def test_a_letter_that_still_fails_stops_no_other(stage: Stage, letters: list[str]) -> None:
    done = stage.run("dead-letters", "retry", "--all")
    assert (done.code, sorted(letters)) == (1, RETRIED)
    assert done.out == "3 dead letters retried; rebuilt: listing_card, streams\n"
    complaints = [line for line in done.err.splitlines() if line.startswith("replay: ")]
    assert len(complaints) == 3
    assert "it is still not a valid command" in complaints[0]
    assert "postgres refuses record 0:5" in complaints[1]
    assert complaints[2] == f"replay: 2 dead letters not retried: {', '.join(FAILED)}"


def test_what_became_of_each_letter_is_in_the_document(stage: Stage, letters: list[str]) -> None:
    told = json.loads(stage.run("dead-letters", "retry", "--all", "--json").out)
    assert (told["retried"], told["rebuilt"]) == (RETRIED, ["listing_card", "streams"])
    assert [change["key"] for change in told["failed"]] == FAILED
    assert "out of range" in told["failed"][1]["error"]
    stage.failing.clear()
    done = stage.run("dead-letters", "retry", "patches/postgres/listings@1/0/5/0", "--json")
    assert (done.code, json.loads(done.out)["failed"], letters[-1]) == (0, [], FAILED[1])


def test_a_letter_that_nothing_needs_is_removed_and_not_reported_as_retried(stage: Stage, letters: list[str]) -> None:
    done = Letter("refused", "2026-01-02T03:04:05Z", b"a", b"done").to_json(topic="t")
    for key in ("process-inbox/0/8", "process-inbox/0/9"):
        stage.log.submit(Entry(DEAD_LETTERS, key, done, 0), 0).result()
    found = stage.run("dead-letters", "retry", "process-inbox/0/2", "process-inbox/0/8")
    assert (found.code, letters) == (0, ["process-inbox/0/2", "process-inbox/0/8"])
    assert found.out.splitlines() == [
        'process-inbox/0/8: removed without a retry: "p/O" has handled it since, or has ended',
        "1 dead letters retried; rebuilt: nothing",
    ]
    told = json.loads(stage.run("dead-letters", "retry", "process-inbox/0/9", "--json").out)
    reason = '"p/O" has handled it since, or has ended'
    assert (told["retried"], told["not_needed"]) == ([], [{"key": "process-inbox/0/9", "reason": reason}])


def test_an_error_that_ends_the_command_hides_nothing_that_was_done(stage: Stage, letters: list[str]) -> None:
    stage.failing["streams"] = KeyboardInterrupt()
    done = stage.run("dead-letters", "retry", "--all", "--json")
    assert done.code != 0
    assert (json.loads(done.out)["retried"], json.loads(done.out)["rebuilt"]) == (RETRIED[-1:], ["listing_card"])
    assert letters == RETRIED[-1:]


def test_a_letter_that_may_be_about_a_view_of_other_modules_is_not_removed_by_all(
    stage: Stage, letters: list[str]
) -> None:
    stage.registry.generations += [generation("orders", 1, "live"), generation("listings", 1, "live")]
    letter = Letter("refused", "2026-01-02T03:04:05Z", b"order/O/1", b"no event").to_json(topic="t")
    for key in ("events/0/7", "patches/0/17"):
        stage.log.submit(Entry(DEAD_LETTERS, key, letter, 0), 0).result()
    done = stage.run("dead-letters", "retry", "--all")
    assert (done.code, sorted(letters)) == (1, RETRIED)
    assert "live views that HEADWATER_MODULES does not declare here (orders)" in " ".join(done.err.split())
    stage.failing.clear()
    assert stage.run("dead-letters", "retry", "events/0/7").code == 0
    assert letters[-1] == "events/0/7"
