"""The topic of a table view, and views over it, in a real read side: built, killed, in a new version, and gone back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from headwater.projections.reading.reader import fold
from headwater.projections.stores.topic.records import topic_of
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import with_rows
from tests.integration.replay.deployed import Command, Deployed
from tests.integration.replay.followed import OVER_VIEWS, copied, followed, followed_groups
from tests.integration.replay.followed_again import followed as followed_again
from tests.integration.replay.followed_rows import (
    append,
    delete_a_row,
    rows_become_the_references,
    rows_in,
    rows_over_views_become_the_references,
    told,
)
from tests.integration.replay.read_side import part, projections
from tests.integration.replay.reading_after import waiting
from tests.integration.replay.things import things
from tests.support.processes import kill
from tests.support.states import differences

pytestmark = [
    pytest.mark.complete,
    pytest.mark.jvm,
    pytest.mark.timeout(3_600),
    pytest.mark.xdist_group("a whole read side"),
]


@pytest.fixture
def modules() -> tuple[str, ...]:
    return ("tests.integration.replay.followed",)


@pytest.fixture
def events() -> Iterator[Source]:
    """In the order of their times: a row is deleted if that was its last event."""
    return iter(things(20_000, seed=1))


def rows_are_there_after_each_event(
    deployed: Deployed, events: Iterator[Source], read: TableView, goes_on: Iterator[bool]
) -> None:
    """As long as `goes_on`: an event comes, and all views over rows of `read` have it once its position is awaited."""
    views = {view.name: view for view in (read, *OVER_VIEWS)}
    with waiting(deployed) as wait:
        while next(goes_on):
            append(deployed, events, 1)
            for view in OVER_VIEWS:
                wait(view, str(deployed.sources[-1].position))
                expected = fold(view, with_rows(view, views, deployed.sources))
                assert differences(rows_in(deployed, "postgres", view), expected) == []


def and_a_kill(deployed: Deployed, supervisor: subprocess.Popen[bytes]) -> Iterator[bool]:
    """So many events, with a kill of what writes the topics before one of them."""
    for number in range(8):
        if number == 4:
            kill(part(supervisor, "load", "topic"))
        yield True
    yield False


def while_it_is_rebuilt(deployed: Deployed, view: TableView) -> Iterator[bool]:
    """As long as a rebuild takes, and one event longer."""
    with ThreadPoolExecutor(1) as thread:
        rebuilt = thread.submit(deployed.replay, "rebuild", view.name)
        while not rebuilt.done():
            yield True
        code, _, complaint = rebuilt.result()
        assert code == 0, complaint
    yield True
    yield False


def verify(replay: Command) -> None:
    """Both stores have what a replay computes."""
    verified = replay("verify", followed.name, followed_groups.name, *(view.name for view in OVER_VIEWS))
    assert verified.code == 0, verified.complaint or verified.document


def kill_the_loader(deployed: Deployed, supervisor: subprocess.Popen[bytes]) -> None:
    """Once it has written something to the topic."""

    def written() -> int:
        return sum(map(len, told(deployed, followed).values()))

    before = written()
    deployed.eventually(lambda: written() > before, "a row is written to the topic")
    kill(part(supervisor, "load", "topic"))


def use(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let what starts from now on have these modules."""
    deployed.settings = replace(deployed.settings, modules=modules)
    monkeypatch.setenv("HEADWATER_MODULES", ",".join(modules))


def rebuild(deployed: Deployed, replay: Command, events: Iterator[Source], *views: TableView) -> None:
    """A rebuild of views while events come."""
    with deployed.traffic(events):
        rebuilt = replay("rebuild", *(view.name for view in views))
        assert rebuilt.code == 0, rebuilt.complaint


def a_row_is_that_of_the_log_and_spark_makes_the_same(deployed: Deployed, replay: Command) -> None:
    key = next(iter(rows_in(deployed, "postgres", copied)))
    told = replay("row", copied.name, key)
    assert told.code == 0, told.complaint
    assert {store["outcome"] for store in told.document["stores"]} == {"equal"}
    rebuilt = replay("rebuild", *(view.name for view in OVER_VIEWS), "--engine", "spark")
    assert rebuilt.code == 0, rebuilt.complaint


def states(deployed: Deployed) -> list[str]:
    return [generation.state for generation in deployed.generations.of(followed.name)]


@pytest.mark.usefixtures("spark")
def test_a_topic_has_the_rows_of_the_other_store_after_kills_a_new_version_and_a_rollback(
    deployed: Deployed, replay: Command, monkeypatch: pytest.MonkeyPatch, events: Iterator[Source]
) -> None:
    append(deployed, events, 300)
    with projections(deployed) as supervisor:
        rows_become_the_references(deployed, followed, followed_groups)  # from bulk
        rows_over_views_become_the_references(deployed, followed)
        rows_are_there_after_each_event(deployed, events, followed, and_a_kill(deployed, supervisor))
        rows_are_there_after_each_event(deployed, events, followed, while_it_is_rebuilt(deployed, followed))
        with deployed.traffic(events):
            for _ in range(3):
                kill_the_loader(deployed, supervisor)
        rows_become_the_references(deployed, followed, followed_groups)  # so the row that is deleted now was there
        deleted = delete_a_row(deployed, events)
        rows_become_the_references(deployed, followed, followed_groups)
        assert told(deployed, followed)[deleted][-1] is None
        rows_over_views_become_the_references(deployed, followed)
        verify(replay)
        use(deployed, monkeypatch, "tests.integration.replay.followed_again")
        rebuild(deployed, replay, events, followed)
    with projections(deployed):
        rows_become_the_references(deployed, followed_again, followed_groups)
        rows_over_views_become_the_references(deployed, followed_again)
        rebuild(deployed, replay, events, followed, *OVER_VIEWS)
        rows_become_the_references(deployed, followed_again, followed_groups)
        rows_over_views_become_the_references(deployed, followed_again)
        a_row_is_that_of_the_log_and_spark_makes_the_same(deployed, replay)
        verify(replay)
        assert states(deployed)[-2:] == ["retired", "live"]
        rolled_back = replay("rollback", followed.name)
        assert rolled_back.code == 0, rolled_back.complaint
        assert states(deployed)[-2:] == ["live", "retired"]
        append(deployed, events, 100)
        rows_become_the_references(deployed, followed_again, followed_groups)
        rows_over_views_become_the_references(deployed, followed_again)
        *_, retired = deployed.generations.of(followed.name)
        topic = topic_of(followed.name, retired.generation)
        assert deployed.log.stored_ends(topic)
        pruned = replay("prune", followed.name, "--yes")
        assert pruned.code == 0, pruned.complaint
        assert retired.generation in [row["generation"] for row in pruned.document["dropped"]]
        # the broker shows what its controller has deleted for a moment
        deployed.eventually(lambda: not deployed.log.stored_ends(topic), "its topic is gone")
        append(deployed, events, 100)
        rows_become_the_references(deployed, followed_again, followed_groups)
        verify(replay)
