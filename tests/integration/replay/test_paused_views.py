"""`replay pause` and `replay resume`: loaders stop and go on, and whoever is killed has paused a view, or has not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial

import psycopg
import pytest
from psycopg import sql

from headwater.api.reads.postgres import Database
from headwater.api.reads.registry import LiveGenerations
from headwater.projections.reading.reader import fold
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.table.view import TableView
from headwater.replay.deployment import open_deployment
from headwater.replay.errors import CannotFoldRow
from headwater.replay.row import fold_rows
from tests.contracts.opened_stores import Rows
from tests.integration.replay.deployed import Command, Deployed
from tests.integration.replay.things import by_group, by_thing, things
from tests.support.background import running
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")


def build(deployed: Deployed, *views: TableView) -> None:
    deployed.generations.prepare()
    deployed.append(things(40))
    deployed.emit(views)
    for _, each in deployed.rebuilder().rebuild_all(views):
        assert not isinstance(each, Exception), each


@contextmanager
def loaded(deployed: Deployed, *views: TableView) -> Iterator[None]:
    """The loaders of `headwater projections`, in this process."""
    service = Service(deployed.settings, deployed.stores, ViewRegistry([("here", view) for view in views]))
    with ExitStack() as stack:
        for store in ("postgres", "elasticsearch", "valkey"):
            stack.enter_context(running(partial(service.run_loader, store)))
        yield


def more(deployed: Deployed, seed: int) -> None:
    deployed.append(things(40, seed=seed))
    deployed.emit([by_group, by_thing])


@pytest.mark.complete
def test_a_paused_view_keeps_its_rows_through_restarts_and_has_everything_after_it_is_resumed(
    deployed: Deployed, replay: Command
) -> None:
    build(deployed, by_group, by_thing)
    with loaded(deployed, by_group, by_thing):
        told = replay("pause", "by_group")
        assert (told.code, [view["view"] for view in told.document["views"]]) == (0, ["by_group"])
        (paused,) = told.document["views"]
        assert replay("pause", "by_group").document["views"] == [paused], "it keeps its time"
        before = eventually(lambda: _stopped(deployed), "the loaders of by_group have stopped")
        more(deployed, 5)
        deployed.rows_become_the_references(by_thing)
        assert _shown(deployed) == before
    with loaded(deployed, by_group, by_thing):  # started again
        more(deployed, 6)
        deployed.rows_become_the_references(by_thing)
        assert _shown(deployed) == before
        assert before["postgres"] != fold(by_group, deployed.sources)
        told = replay("status", "by_group")
        assert (told.code, {lag["standing"] for lag in told.document}) == (3, {"paused"})
        assert all("run `replay resume by_group`" in line["problem"] for line in told.document)
        assert {each["paused_since"][:19] for each in told.document} == {paused["since"][:19]}
        told = replay("resume", "by_group")
        assert (told.code, told.document["views"]) == (0, [paused])
        deployed.rows_become_the_references(by_group)
    assert replay("resume", "by_group").document["views"] == [{"view": "by_group", "since": None}]


def _shown(deployed: Deployed) -> dict[str, Rows]:
    """The rows of by_group in each store."""
    return {name: server.rows(by_group) for name, server in deployed.servers.items()}


def _stopped(deployed: Deployed) -> dict[str, Rows] | None:
    """The rows of by_group, if the loaders of each store have seen the pause: events reach by_thing, and not by_group.

    A loader may apply the patches of one view after those of the other. It has done so once it applies later ones: so
    events come twice.
    """
    before = _shown(deployed)
    for _ in range(2):
        more(deployed, 100 + deployed.emitted)
        deployed.rows_become_the_references(by_thing)
    return before if _shown(deployed) == before else None


@pytest.mark.complete
def test_nothing_builds_a_paused_view_and_a_view_that_is_being_built_is_not_paused(
    deployed: Deployed, replay: Command
) -> None:
    build(deployed, by_group, by_thing)
    assert replay("pause", "nothing").code == 2
    with deployed.generations.rebuilding("by_group"):
        told = replay("pause", "by_group", "by_thing")
        assert (told.code, [view["view"] for view in told.document["views"]]) == (1, ["by_thing"])
        assert '"by_group" cannot be paused: another rebuild is running' in told.complaint
    for verb in ("rebuild", "rollback", "verify"):
        told = replay(verb, "by_thing")
        assert (told.code, "it is paused since" in told.complaint) == (1, True), told.complaint
        assert "run `replay resume by_thing`" in told.complaint
    (paused,) = deployed.generations.paused().items()
    assert paused == ("by_thing", asyncio.run(_since_in_the_api(deployed, by_thing)))
    assert asyncio.run(_since_in_the_api(deployed, by_group)) is None
    with open_deployment(os.environ) as opened, pytest.raises(CannotFoldRow, match="is paused since"):
        # of erased events: nobody waits for a loader that applies nothing
        fold_rows(opened, by_thing, ["a"], ["postgres"], lambda _: None, write=True, after={"0": 1})
    assert [view["view"] for view in replay("resume", "--all").document["views"]] == ["by_thing"]
    assert replay("rebuild", "by_thing").code == 0
    told = replay("pause", "city_market")
    assert (told.code, "it has no live generation" in told.complaint) == (1, True)


async def _since_in_the_api(deployed: Deployed, view: TableView) -> datetime | None:
    async with opened_database(deployed) as database:
        return await LiveGenerations(database, deployed.settings.environment).paused_since(view)


@asynccontextmanager
async def opened_database(deployed: Deployed) -> AsyncIterator[Database]:
    database = Database(deployed.stores.postgres, deployed.settings.environment, 1)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@pytest.mark.complete
def test_a_view_that_is_dropped_is_paused_no_more(deployed: Deployed) -> None:
    build(deployed, by_group)
    deployed.generations.pause("by_group")
    deployed.generations.withdraw("by_group")
    assert deployed.generations.paused() == {}


@pytest.mark.complete
def test_a_pause_that_is_killed_has_not_paused_and_can_be_repeated(deployed: Deployed, replay: Command) -> None:
    build(deployed, by_group)
    table = sql.Identifier(deployed.settings.environment, "_paused_views")
    with psycopg.connect(deployed.stores.postgres) as holder, holder.cursor() as cursor:
        cursor.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(table))
        process = deployed.start("replay", "pause", "by_group")
        try:
            deployed.eventually(lambda: _waits(deployed), "it waits for the lock on the table")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert deployed.generations.paused() == {}
    # PostgreSQL ends the session of the killed process once its statement has ended, and with it the lock
    eventually(lambda: replay("pause", "by_group").code == 0, "it can be repeated")
    assert list(deployed.generations.paused()) == ["by_group"]


def _waits(deployed: Deployed) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    with psycopg.connect(deployed.stores.postgres) as connection:
        found = connection.execute(waiting, [f'%"{deployed.settings.environment}"._paused_views%']).fetchall()
    return bool(found)
