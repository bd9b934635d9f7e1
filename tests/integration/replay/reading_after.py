"""Waits as a query with `after=` does, in a deployment under test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.api.reads.log import LogReader, TopicLedgers
from headwater.api.reads.postgres import Database, PostgresReader
from headwater.api.reads.registry import LiveGenerations
from headwater.api.waiting.awaited import After
from headwater.api.waiting.captured import CapturedReader
from headwater.api.waiting.waiter import Waiter
from headwater.projections.registry import ViewRegistry
from headwater.projections.view import View
from tests.integration.replay.deployed import Deployed
from tests.support.waiting import BOUND_S


@contextmanager
def waiting(deployed: Deployed) -> Iterator[Callable[[View, str], None]]:
    """Gives what returns once a view has a position in PostgreSQL."""
    settings, environment = deployed.settings, deployed.settings.environment
    views = ViewRegistry.load(settings.modules).views
    events, captured = LogReader(deployed.log), CapturedReader(deployed.log, {})
    topics = TopicLedgers(deployed.log, settings.patch_partitions)
    database = Database(deployed.stores.postgres, environment)
    generations, reader = LiveGenerations(database, environment), PostgresReader(database, environment)
    waiter = Waiter(events, captured, generations, topics, views, settings.partitions, settings.patch_partitions)

    with asyncio.Runner() as runner:

        def wait(view: View, position: str) -> None:
            runner.run(waiter.wait(views[view.name], reader, After(position, int(BOUND_S * 1000))))

        runner.run(database.open())
        try:
            yield wait
        finally:
            runner.run(database.close())
            for reader_of_log in (events, captured, topics):
                reader_of_log.close()
